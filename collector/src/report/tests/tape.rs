//! Sessions built by hand, for the tests of reports and flamegraphs.

use gputrace_wire::call::{self, Call, Detail, Launch, operation, wait};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::clock::tick;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, Code};
use gputrace_wire::device::{self, DeviceCopy, DeviceFill, Execution};

use crate::aggregate::Aggregates;
use crate::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::{Model, Totals};

/// A session's batches, in the making. Each call advances the clock.
pub(crate) struct Tape {
    batches: Vec<Batch>,
    cells: Vec<Cell>,
    records: Vec<Cell>,
    pub(crate) now_ns: u64,
    /// Registers a thread of later kernels.
    pub(crate) registers: u16,
    correlation: u32,
    stack: u32,
    /// The stream that operations go to: its definition, its number in records, and the device's ordinal.
    stream: (u32, u32, u16),
}

pub(crate) const KERNELS: [(u32, &str); 4] = [
    (
        20,
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
    ),
    (
        21,
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    ),
    (22, "triton_red_fused_native_layer_norm_3"),
    (23, "_ZN3foo29vectorized_elementwise_kernelILi4ENS_15CUDAFunctor_addIfEEEEvT0_"),
];
const APIS: [(u32, &str); 6] = [
    (10, "cuLaunchKernel"),
    (11, "cuMemcpyHtoDAsync_v2"),
    (12, "cuStreamSynchronize"),
    (13, "cuModuleLoadData"),
    (14, "cuMemsetD8Async"),
    (15, "cuMemcpyDtoHAsync_v2"),
];
pub(crate) const MAIN: u32 = 2;
pub(crate) const WORKER: u32 = 3;

impl Tape {
    /// A training process on one device, a simulated one with `simulated`.
    pub(crate) fn new(simulated: bool) -> Tape {
        let mut device = vec![0; 24];
        use definition::device as field;
        for (index, value) in [
            (field::TOTAL_MEMORY_BYTES, 150_754_820_096),
            (field::COMPUTE_MAJOR, 9),
            (field::MULTIPROCESSORS, 132),
            (field::WARP_SIZE, 32),
            (field::MAX_THREADS_PER_MULTIPROCESSOR, 2048),
            (field::MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
            (field::REGISTERS_PER_MULTIPROCESSOR, 65_536),
            (field::REGISTERS_PER_BLOCK, 65_536),
            (field::SHARED_BYTES_PER_MULTIPROCESSOR, 233_472),
            (field::SHARED_BYTES_PER_BLOCK_OPTIN, 232_448),
            (field::RESERVED_SHARED_BYTES_PER_BLOCK, 1024),
            (field::UUID_LOW, 0x0807_0605_0403_0201),
            (field::UUID_HIGH, 0x100f_0e0d_0c0b_0a09),
            (field::SIMULATED, u64::from(simulated)),
            (field::MAX_THREADS_PER_BLOCK, 1024),
        ] {
            device[index] = value;
        }
        let define = |kind, id, fields: &[u64], text: &str| Definition {
            kind,
            id,
            fields: fields.to_vec(),
            text: text.as_bytes().to_vec(),
        };
        use definition::kind as is;
        let mut records = vec![
            define(
                is::PROCESS,
                1,
                &[4242, 4241, 13_000, u64::from(simulated)],
                "python\0train.py\0--epochs\x003",
            ),
            define(is::THREAD, MAIN, &[4242, 0], "python"),
            define(is::THREAD, WORKER, &[4250, 0], "pt_autograd_0"),
            define(is::DEVICE, 4, &device, "NVIDIA H200"),
            define(is::CONTEXT, 5, &[1, 4], ""),
        ];
        records.extend(APIS.map(|(id, text)| define(is::API, id, &[], text)));
        records.extend(KERNELS.map(|(id, text)| define(is::NAME, id, &[], text)));
        records.extend(KERNELS.map(|(id, _)| define(is::FUNCTION, id + 10, &[0, id.into(), 0, 32], "")));
        let begin = SessionBegin {
            recorder: "0.1.0".into(),
            command: ["python", "train.py", "--epochs", "3"].map(str::to_owned).into(),
            realtime_ns: 1_700_000_000_000_000_000,
            monotonic_ns: 1_000_000_000,
            ..SessionBegin::default()
        };
        let process = ProcessBegin {
            pid: 4242,
            parent_pid: 4241,
            tick_kind: tick::MONOTONIC_NS,
            ticks_per_second: 1_000_000_000,
            start_ticks: 1_000_000_000,
            start_monotonic_ns: 1_000_000_000,
            start_realtime_ns: begin.realtime_ns,
            ..ProcessBegin::default()
        };
        let batches = vec![
            Batch::SessionBegin(begin),
            Batch::ProcessBegin(process),
            Batch::Definitions { process: 0, records },
        ];
        let mut tape = Tape {
            batches,
            cells: vec![],
            records: vec![],
            now_ns: 1_000_000_000,
            registers: 32,
            correlation: 0,
            stack: 0,
            stream: (0, 0, 0),
        };
        tape.thread(MAIN);
        tape
    }

    pub(crate) fn thread(&mut self, thread: u32) {
        self.cells.push(ThreadBegin { thread, ticks: self.now_ns }.to_cell());
    }

    pub(crate) fn define_thread(&mut self, id: u32, tid: u64, name: &str) {
        let record =
            Definition { kind: definition::kind::THREAD, id, fields: vec![tid, 0], text: name.into() };
        self.batches.push(Batch::Definitions { process: 0, records: vec![record] });
    }

    pub(crate) fn define(&mut self, kind: u16, id: u32, fields: &[u64], text: &[u8]) {
        let record = Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() };
        self.batches.push(Batch::Definitions { process: 0, records: vec![record] });
    }

    /// A function whose lines have two bytes of code each.
    pub(crate) fn code(&mut self, id: u32, name: &[u8], file: &[u8], first_line: u64) {
        let table = [2u8, 1].repeat(100);
        let code = Code {
            runtime: definition::code_runtime::CPYTHON,
            first_line,
            table_form: definition::line_table::LNOTAB,
            table_bytes: table.len() as u64,
            name,
            file,
            ..Code::default()
        };
        self.define(definition::kind::CODE, id, &code.fields(), &[name, file, &table].concat());
    }

    /// A stack of (code, lines after its first line), outermost first. A pair with code 0 stays as it is.
    pub(crate) fn stack(&mut self, id: u32, frames: &[(u32, u64)]) {
        let fields: Vec<u64> = frames
            .iter()
            .flat_map(|(code, at)| [u64::from(*code), if *code == 0 { *at } else { at * 2 }])
            .collect();
        self.define(definition::kind::STACK, id, &fields, b"");
    }

    /// An entry as it is.
    pub(crate) fn cell(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    /// Sets the stack of all later calls.
    pub(crate) fn at(&mut self, stack: u32) {
        self.stack = stack;
    }

    /// Sets the stream of all later calls: its definition, its number in records, and the device's ordinal.
    pub(crate) fn on(&mut self, stream: u32, number: u32, device: u16) {
        self.stream = (stream, number, device);
    }

    /// Adds an entry of the thread's ring.
    pub(crate) fn entry(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    pub(crate) fn call(
        &mut self,
        kind: u16,
        api: u32,
        host_ns: u64,
        correlation: u32,
        flags: u8,
        detail: Detail,
    ) {
        let call = Call {
            kind,
            flags,
            api,
            start_ticks: self.now_ns,
            duration_ticks: host_ns,
            correlation,
            stack: self.stack,
            stream: self.stream.0,
            detail,
            ..Call::default()
        };
        self.cells.push(call.to_cell());
        self.now_ns += host_ns + 500;
    }

    /// When and where the latest correlation id's operation was executed.
    fn executed(&mut self, device_ns: u64) -> Execution {
        let start_ns = self.now_ns + 2_000;
        let (_, stream, device) = self.stream;
        let (correlation, end_ns) = (self.correlation, start_ns + device_ns);
        Execution { correlation, start_ns, end_ns, stream, device: device.into(), ..Execution::default() }
    }

    /// A launch, with its record if `device_ns` is known.
    pub(crate) fn launch(&mut self, kernel: u32, threads: u16, device_ns: Option<u64>) {
        self.correlation += 1;
        let launch =
            Launch { function: kernel + 10, grid: [132, 2, 1], block: [threads, 1, 1], ..Launch::default() };
        if let Some(device_ns) = device_ns {
            let mut record = device::Kernel {
                name: kernel,
                grid: launch.grid,
                block: launch.block,
                registers: self.registers,
                static_shared_bytes: 4096,
                dynamic_shared_bytes: 512,
                ..device::Kernel::default()
            };
            record.execution = self.executed(device_ns);
            self.records.extend(record.to_cells());
        }
        self.call(kind::LAUNCH, 10, 2_900, self.correlation, 0, Detail::Launch(launch));
    }

    pub(crate) fn captured_launch(&mut self) {
        let launch = Launch { function: 30, grid: [1; 3], block: [32, 1, 1], ..Launch::default() };
        self.call(kind::LAUNCH, 10, 900, 0, flag::CAPTURED, Detail::Launch(launch));
    }

    pub(crate) fn copy(&mut self, api: u32, copy_kind: u8, bytes: u64, device_ns: u64) {
        self.correlation += 1;
        let record =
            DeviceCopy { execution: self.executed(device_ns), bytes, copy_kind, ..DeviceCopy::default() };
        self.records.push(record.to_cell());
        let detail = Detail::Copy(call::Copy { direction: copy_kind, bytes, count: 1 });
        self.call(kind::COPY, api, 4_000, self.correlation, 0, detail);
    }

    /// A copy between the process's devices with these ordinals.
    pub(crate) fn peer_copy(&mut self, [source_device, target_device]: [u16; 2], bytes: u64, device_ns: u64) {
        self.correlation += 1;
        let execution = self.executed(device_ns);
        let ends = DeviceCopy { copy_kind: 10, source_device, target_device, ..DeviceCopy::default() };
        self.records.push(DeviceCopy { execution, bytes, ..ends }.to_cell());
        let detail = Detail::Copy(call::Copy { direction: call::direction::PEER, bytes, count: 1 });
        self.call(kind::COPY, 11, 4_000, self.correlation, 0, detail);
    }

    pub(crate) fn fill(&mut self, bytes: u64, device_ns: u64) {
        self.correlation += 1;
        let record = DeviceFill { execution: self.executed(device_ns), bytes, ..DeviceFill::default() };
        self.records.push(record.to_cell());
        self.call(kind::FILL, 14, 3_100, self.correlation, 0, Detail::Fill { bytes, value: 0 });
    }

    pub(crate) fn wait(&mut self, host_ns: u64) {
        self.call(kind::WAIT, 12, host_ns, 0, 0, Detail::Wait { what: wait::STREAM, handle: 1 });
    }

    pub(crate) fn load_module(&mut self, host_ns: u64) {
        let detail = Detail::Module { module: 0, operation: operation::LOAD };
        self.call(kind::MODULE, 13, host_ns, 0, 0, detail);
    }

    pub(crate) fn notice(&mut self, severity: u64, rung: u64, text: &str) {
        let record = Definition {
            kind: definition::kind::NOTICE,
            id: 0,
            fields: vec![severity, rung],
            text: text.into(),
        };
        self.batches.push(Batch::Definitions { process: 0, records: vec![record] });
    }

    /// A wait that returns an error.
    pub(crate) fn fail(&mut self, status: u16) {
        let detail = Detail::Wait { what: wait::STREAM, handle: 1 };
        self.call(kind::WAIT, 12, 40_000, 0, 0, detail);
        self.refuse(status);
    }

    /// Gives the latest call that status.
    pub(crate) fn refuse(&mut self, status: u16) {
        if let Some(last) = self.cells.last_mut() {
            last.put_u16(60, status);
        }
    }

    pub(crate) fn play(self, counters: Counters) -> (Totals, Aggregates) {
        self.end(ProcessEnd::Exit, counters)
    }

    pub(crate) fn end(self, end: ProcessEnd, counters: Counters) -> (Totals, Aggregates) {
        self.end_in(Model::new(Aggregates::default()), end, counters)
    }

    /// The session's begin.
    pub(crate) fn batches_of_session(&self) -> Vec<Batch> {
        self.batches.iter().take(1).cloned().collect()
    }

    /// All else, with the process's exit.
    pub(crate) fn batches_of_process(self) -> Vec<Batch> {
        let batches = self.ended(ProcessEnd::Exit, Counters::default());
        batches.into_iter().skip(1).collect()
    }

    /// The whole session.
    pub(crate) fn batches(self) -> Vec<Batch> {
        let mut batches = self.ended(ProcessEnd::Exit, Counters::default());
        batches.push(Batch::SessionEnd { wall_ns: 0 });
        batches
    }

    pub(crate) fn end_in(
        self,
        mut model: Model<Aggregates>,
        end: ProcessEnd,
        counters: Counters,
    ) -> (Totals, Aggregates) {
        let wall_ns = self.now_ns + 400_000 - 1_000_000_000;
        let batches = self.ended(end, counters);
        batches.iter().chain([&Batch::SessionEnd { wall_ns }]).for_each(|batch| model.consume(batch));
        model.finish()
    }

    /// All batches up to the process's end.
    fn ended(mut self, end: ProcessEnd, counters: Counters) -> Vec<Batch> {
        self.batches.push(Batch::Cells { process: 0, ring: 0, cells: self.cells });
        self.batches.push(Batch::Cells { process: 0, ring: 1, cells: self.records });
        self.batches.push(Batch::Counters(counters));
        let monotonic_ns = self.now_ns + 400_000;
        self.batches.push(Batch::ProcessEnd { process: 0, end, monotonic_ns });
        self.batches
    }
}

/// Three hundred steps of a training run.
pub(crate) fn training(simulated: bool) -> (Totals, Aggregates) {
    let mut tape = Tape::new(simulated);
    tape.load_module(12_345_678);
    for step in 0..300u64 {
        tape.copy(11, 1, 1 << 20, 45_000 + step * 10);
        for layer in 0..4 {
            tape.launch(20, 512, Some(1_200 + step % 7 * 100 + layer));
            tape.launch(21, 128, Some(18_000 + step * 31));
        }
        tape.launch(22, if step % 2 == 0 { 1024 } else { 256 }, Some(6_400));
        tape.fill(4096, 900);
        tape.wait(31_000);
    }
    tape.thread(WORKER);
    for _ in 0..20 {
        tape.launch(23, 64, Some(2_345_678));
        tape.wait(2_400_000);
    }
    tape.captured_launch();
    tape.thread(MAIN);
    tape.copy(15, 2, 123_456_789, 9_876_543);
    tape.wait(10_000_000);
    let mut values = [0; Counter::COUNT];
    values[Counter::RecordsDelivered as usize] = 3_322;
    values[Counter::RecordTicks as usize] = 1_234_567;
    tape.play(Counters { sampled_hooks: 1_000, sampled_ticks: 46_000, values, ..Counters::default() })
}

/// The codes and stacks of a training program in two files of its own and two libraries.
pub(crate) fn python_stacks(tape: &mut Tape) {
    for (id, name) in [(40, "gemm_bf16"), (41, "add_f32"), (42, "adam_step")] {
        tape.define(definition::kind::NAME, id, &[], name.as_bytes());
        tape.define(definition::kind::FUNCTION, id + 10, &[0, id.into(), 0, 32], b"");
    }
    const TORCH: &str = "/opt/venv/lib/python3.12/site-packages/torch";
    let torch = |file: &str| format!("{TORCH}/{file}").into_bytes();
    tape.code(100, b"<module>", b"/home/me/train.py", 1);
    tape.code(101, b"train_step", b"/home/me/train.py", 20);
    tape.code(102, b"Linear.forward", &torch("nn/modules/linear.py"), 120);
    tape.code(103, b"Adam.step", &torch("optim/adam.py"), 200);
    tape.code(104, b"load", b"/home/me/data.py", 5);
    tape.code(105, b"Linear.forward", &torch("nn/quantized/linear.py"), 30);
    tape.code(106, b"walk", b"/home/me/train.py", 60);
    tape.stack(110, &[(100, 39), (101, 2), (102, 5)]);
    tape.stack(111, &[(100, 39), (101, 4), (103, 17)]);
    tape.stack(112, &[(100, 38), (104, 3)]);
    tape.stack(113, &[(100, 39), (101, 2), (105, 1)]);
    // A recursive function, deeper than is recorded.
    tape.stack(114, &[(0, 0), (106, 1), (106, 1), (106, 2)]);
    // A frame in the middle that could not be defined, and a code object that is not in the trace.
    tape.stack(115, &[(100, 40), (0, 1), (101, 5), (999, 3)]);
    // No known frame at all.
    tape.stack(116, &[(0, 3)]);
}

/// The training run with Python stacks.
pub(crate) fn stacked(simulated: bool) -> (Totals, Aggregates) {
    let mut tape = Tape::new(simulated);
    python_stacks(&mut tape);
    tape.load_module(12_345_678);
    for step in 0..300u64 {
        tape.at(112);
        tape.copy(11, 1, 1 << 20, 45_000 + step * 10);
        for layer in 0..4 {
            tape.at(110);
            tape.launch(41, 512, Some(1_200 + step % 7 * 100 + layer));
            tape.at(113);
            tape.launch(40, 128, Some(18_000 + step * 31));
        }
        tape.at(111);
        tape.launch(42, 256, Some(6_400));
        tape.at(114);
        tape.launch(42, 64, if step % 2 == 0 { Some(2_000) } else { None });
        tape.at(115);
        tape.fill(4096, 900);
        tape.at(116);
        tape.fill(64, 500);
        tape.at(0);
        tape.wait(31_000);
    }
    tape.play(Counters::default())
}
