//! Whole graph launches.

prefix_record! {
    /// A graph launch as one span: kind `GRAPH_TRACE`, from CUDA 11.7 on. While it is on, the graph's nodes
    /// have no records.
    #[doc(alias = "CUpti_ActivityGraphTrace")]
    GraphTraceRecord {
        correlation_id: u32 = "correlationId" at 4;
        /// Start in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        start_ns: u64 = "start" at 8;
        /// End in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        end_ns: u64 = "end" at 16;
        /// The device of the graph's first node.
        device_id: u32 = "deviceId" at 24;
        graph_id: u32 = "graphId" at 28;
        context_id: u32 = "contextId" at 32;
        stream_id: u32 = "streamId" at 36;
        /// The device of the graph's last node.
        end_device_id: u32 = "endDeviceId" at 48 since CUDA_12_3;
        end_context_id: u32 = "endContextId" at 52 since CUDA_12_3;
    }
}
