//! Copies between contexts.

prefix_record! {
    /// A copy from one context to another: kind `MEMCPY2`.
    #[doc(alias = "CUpti_ActivityMemcpyPtoP")]
    MemcpyPtoPRecord {
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
        /// The device that copied.
        device_id: u32 = "deviceId" at 32;
        context_id: u32 = "contextId" at 36;
        stream_id: u32 = "streamId" at 40;
        source_device_id: u32 = "srcDeviceId" at 44;
        source_context_id: u32 = "srcContextId" at 48;
        destination_device_id: u32 = "dstDeviceId" at 52;
        destination_context_id: u32 = "dstContextId" at 56;
        correlation_id: u32 = "correlationId" at 60;
        /// 0 outside graphs.
        graph_node_id: u64 = "graphNodeId" at 72;
        /// 0 outside graphs.
        graph_id: u32 = "graphId" at 80;
        channel_id: u32 = "channelID" at 84 since CUDA_11_7;
        /// A `CUpti_ChannelType`.
        channel_type: u32 = "channelType" at 88 since CUDA_11_7;
    }
}
