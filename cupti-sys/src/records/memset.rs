//! Fills of device memory.

prefix_record! {
    /// A fill: kind `MEMSET`.
    #[doc(alias = "CUpti_ActivityMemset")]
    MemsetRecord {
        /// What was written, in the width of the call.
        value: u32 = "value" at 4;
        bytes: u64 = "bytes" at 8;
        /// Start in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        start_ns: u64 = "start" at 16;
        /// End in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        end_ns: u64 = "end" at 24;
        device_id: u32 = "deviceId" at 32;
        context_id: u32 = "contextId" at 36;
        stream_id: u32 = "streamId" at 40;
        correlation_id: u32 = "correlationId" at 44;
        /// `CUpti_ActivityFlag`s: whether it was asynchronous.
        flags: u16 = "flags" at 48;
        /// A `CUpti_ActivityMemoryKind`.
        memory_kind: u16 = "memoryKind" at 50;
        /// 0 outside graphs.
        graph_node_id: u64 = "graphNodeId" at 64;
        /// 0 outside graphs.
        graph_id: u32 = "graphId" at 72;
        channel_id: u32 = "channelID" at 76 since CUDA_11_7;
        /// A `CUpti_ChannelType`.
        channel_type: u32 = "channelType" at 80 since CUDA_11_7;
        /// Not 0 if a kernel launched it.
        is_device_launched: u8 = "isDeviceLaunched" at 84 since CUDA_13_0;
        source_graph_id: u32 = "sourceGraphId" at 88 since CUDA_13_4;
        source_graph_node_id: u64 = "sourceGraphNodeId" at 96 since CUDA_13_4;
    }
}
