//! Copies within one context, or between a context and the host.

prefix_record! {
    /// A copy: kind `MEMCPY`.
    #[doc(alias = "CUpti_ActivityMemcpy")]
    MemcpyRecord {
        /// A `CUpti_ActivityMemcpyKind`.
        copy_kind: u8 = "copyKind" at 4;
        /// A `CUpti_ActivityMemoryKind`.
        source_kind: u8 = "srcKind" at 5;
        /// A `CUpti_ActivityMemoryKind`.
        destination_kind: u8 = "dstKind" at 6;
        /// `CUpti_ActivityFlag`s: whether it was asynchronous.
        flags: u8 = "flags" at 7;
        bytes: u64 = "bytes" at 8;
        /// Start in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        start_ns: u64 = "start" at 16;
        /// End in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        end_ns: u64 = "end" at 24;
        device_id: u32 = "deviceId" at 32;
        context_id: u32 = "contextId" at 36;
        stream_id: u32 = "streamId" at 40;
        correlation_id: u32 = "correlationId" at 44;
        /// The id of the runtime call around it, if that was recorded.
        runtime_correlation_id: u32 = "runtimeCorrelationId" at 48;
        /// 0 outside graphs.
        graph_node_id: u64 = "graphNodeId" at 64;
        /// 0 outside graphs.
        graph_id: u32 = "graphId" at 72;
        channel_id: u32 = "channelID" at 76 since CUDA_11_7;
        /// A `CUpti_ChannelType`.
        channel_type: u32 = "channelType" at 80 since CUDA_11_7;
        /// Not 0 if a kernel launched it.
        is_device_launched: u8 = "isDeviceLaunched" at 84 since CUDA_13_0;
        /// How many copies one batch call merged into this record.
        copy_count: u64 = "copyCount" at 88 since CUDA_12_8;
        source_graph_id: u32 = "sourceGraphId" at 96 since CUDA_13_4;
        source_graph_node_id: u64 = "sourceGraphNodeId" at 104 since CUDA_13_4;
    }
}
