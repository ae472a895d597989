//! The table of metrics: names, kinds, units and descriptions.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Counted event by event.
    Counter,
    /// A total that is kept elsewhere and read now and then.
    Observed,
    /// Goes up and down.
    UpDown,
    Histogram,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instrument {
    pub name: &'static str,
    pub kind: Kind,
    /// In UCUM; empty if the vocabulary that defines the name gives no unit.
    pub unit: &'static str,
    pub about: &'static str,
}

macro_rules! instruments {
    ($($id:ident = $name:literal $kind:ident $unit:literal $about:literal;)*) => {
        $(pub const $id: Instrument = Instrument { name: $name, kind: Kind::$kind, unit: $unit, about: $about };)*
        #[cfg(test)]
        pub const ALL: &[Instrument] = &[$($id),*];
    };
}

instruments! {
    LAUNCHES = "gpu.cuda.kernel.launch.calls" Counter "" "Kernel launches that the driver accepted for execution";
    GRAPH_LAUNCHES = "gpu.cuda.graph.launch.calls" Counter "" "Graph launches that the driver accepted";
    KERNELS = "gpu.cuda.kernel.executions" Counter "{kernel}" "Kernels executed, also those without device times";
    KERNEL_DURATION = "gpu.cuda.kernel.duration" Histogram "s" "How long kernels executed, on the device's clock";
    KERNEL_QUEUE = "gpu.cuda.kernel.queue.duration" Histogram "s" "From the end of the launching call to the start on the device";
    COPIES = "gpu.cuda.memory.copies" Histogram "By" "Sizes of copies executed";
    COPY_DURATION = "gpu.cuda.memory.copy.duration" Histogram "s" "How long copies took on the device";
    FILLED = "gpu.cuda.memset.bytes" Counter "By" "Bytes that memsets filled";
    FILL_DURATION = "gpu.cuda.memset.duration" Histogram "s" "How long memsets took on the device";
    GRAPH_DURATION = "gpu.cuda.graph.duration" Histogram "s" "How long graphs took that were timed as a whole";
    ESTIMATED = "gpu.cuda.time.estimated" Counter "s" "Estimated device time of operations without device times, by the mean of those like them so far";
    ALLOCATED = "gpu.cuda.memory.allocations" Counter "By" "Bytes allocated";
    ALLOCATIONS = "gpu.cuda.memory.allocation.calls" Counter "" "Allocations that succeeded";
    FREED = "gpu.cuda.memory.free.bytes" Counter "By" "Bytes freed, of allocations that were seen";
    REGISTERED = "gpu.cuda.host.register.bytes" Counter "By" "Bytes of the program's own memory that were registered";
    IN_USE = "gpu.cuda.memory.usage" UpDown "By" "Bytes allocated and not freed";
    POOL_IN_USE = "gpu.cuda.memory.pool.usage" UpDown "By" "Bytes allocated from a pool and not freed";
    POOL_RESERVED = "gpu.cuda.memory.pool.reserved" UpDown "By" "Bytes that a pool had taken from the device when the program last asked";
    STREAM_WAITS = "gpu.cuda.stream.synchronize.calls" Counter "" "Calls that wait for a stream";
    EVENT_WAITS = "gpu.cuda.event.synchronize.calls" Counter "" "Calls that wait for an event";
    DEVICE_WAITS = "gpu.cuda.device.synchronize.calls" Counter "" "Calls that wait for all of a context";
    WAIT_DURATION = "gpu.cuda.synchronize.duration" Histogram "s" "How long the host waited for the device in these calls";
    EVENTS_RECORDED = "gpu.cuda.event.record.calls" Counter "" "Calls that record an event";
    CALL_DURATION = "gpu.cuda.call.duration" Histogram "s" "How long calls of the driver took, failed ones too";
    ERRORS = "gpu.cuda.errors" Counter "{error}" "Calls that failed, and not by design";
    DROPPED = "gputrace.dropped" Observed "{event}" "What is missing from the trace";
    HOOKED = "gputrace.hook.calls" Observed "{call}" "Driver calls that were traced";
    HOOK_TIME = "gputrace.hook.time" Observed "s" "Time spent tracing calls on the program's threads: the mean of those measured times all";
    RECORDS = "gputrace.device_records" Observed "{record}" "Device records delivered";
    RECORD_TIME = "gputrace.device_record.time" Observed "s" "Time spent on device records, off the program's threads";
    WAITED_TIME = "gputrace.wait.time" Observed "s" "Time that the program's threads waited for room, as --on-full wait asks";
}
