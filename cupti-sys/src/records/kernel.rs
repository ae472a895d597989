//! Kernel executions.

use core::ffi::{CStr, c_char};

prefix_record! {
    /// A kernel execution: kinds `KERNEL` and `CONCURRENT_KERNEL`.
    #[doc(alias = "CUpti_ActivityKernel")]
    KernelRecord {
        /// A `CUfunc_cache`: what was asked for in the low four bits, what was used in the high four.
        cache_config: u8 = "cacheConfig" at 4;
        /// A `CUsharedconfig`.
        shared_memory_config: u8 = "sharedMemoryConfig" at 5;
        registers_per_thread: u16 = "registersPerThread" at 6;
        /// Start in CUPTI's clock, in nanoseconds; 0 if the time is not known.
        start_ns: u64 = "start" at 16;
        /// End in CUPTI's clock, in nanoseconds; 0 if the time is not known or the kernel still runs.
        end_ns: u64 = "end" at 24;
        /// When it and the kernels it launched were done, in nanoseconds; 0 if that is not known.
        completed_ns: u64 = "completed" at 32;
        device_id: u32 = "deviceId" at 40;
        context_id: u32 = "contextId" at 44;
        stream_id: u32 = "streamId" at 48;
        grid_x: i32 = "gridX" at 52;
        grid_y: i32 = "gridY" at 56;
        grid_z: i32 = "gridZ" at 60;
        block_x: i32 = "blockX" at 64;
        block_y: i32 = "blockY" at 68;
        block_z: i32 = "blockZ" at 72;
        static_shared_bytes: i32 = "staticSharedMemory" at 76;
        dynamic_shared_bytes: i32 = "dynamicSharedMemory" at 80;
        local_bytes_per_thread: u32 = "localMemoryPerThread" at 84;
        /// The launch's id; all kernels of one graph launch share it.
        correlation_id: u32 = "correlationId" at 92;
        grid_id: i64 = "gridId" at 96;
        /// The mangled name; CUPTI owns the text. See [`name`](Self::name).
        name_pointer: *const c_char = "name" at 104;
        /// 0 unless latency timestamps are on.
        queued_ns: u64 = "queued" at 120;
        /// 0 unless latency timestamps are on.
        submitted_ns: u64 = "submitted" at 128;
        /// A `CUpti_ActivityLaunchType`.
        launch_type: u8 = "launchType" at 136;
        /// The shared memory that the multiprocessor was set up with.
        shared_memory_executed_bytes: u32 = "sharedMemoryExecuted" at 140;
        /// 0 outside graphs.
        graph_node_id: u64 = "graphNodeId" at 144;
        /// 0 outside graphs. It identifies the executable graph, whatever its name says.
        graph_id: u32 = "graphId" at 156;
        channel_id: u32 = "channelID" at 168 since CUDA_11_7;
        /// A `CUpti_ChannelType`.
        channel_type: u32 = "channelType" at 172 since CUDA_11_7;
        cluster_x: u32 = "clusterX" at 176 since CUDA_11_8;
        cluster_y: u32 = "clusterY" at 180 since CUDA_11_8;
        cluster_z: u32 = "clusterZ" at 184 since CUDA_11_8;
        /// A `CUclusterSchedulingPolicy`.
        cluster_scheduling_policy: u32 = "clusterSchedulingPolicy" at 188 since CUDA_11_8;
        local_bytes_total: u64 = "localMemoryTotal_v2" at 192 since CUDA_11_8;
        /// CUDA 12.0 and 12.1 write it too, but report the version of 11.8, which does not.
        max_potential_cluster_size: u32 = "maxPotentialClusterSize" at 200 since CUDA_12_2;
        /// CUDA 12.0 and 12.1 write it too, but report the version of 11.8, which does not.
        max_active_clusters: u32 = "maxActiveClusters" at 204 since CUDA_12_2;
        /// Not 0 if a kernel launched it.
        is_device_launched: u8 = "isDeviceLaunched" at 208 since CUDA_13_0;
        /// The launch's priority.
        priority: i32 = "priority" at 216 since CUDA_13_1;
        execution_model: u32 = "executionModel" at 224 since CUDA_13_3;
        /// The graph from which the executable graph was made.
        source_graph_id: u32 = "sourceGraphId" at 232 since CUDA_13_4;
        source_graph_node_id: u64 = "sourceGraphNodeId" at 240 since CUDA_13_4;
    }
}

impl<'a> KernelRecord<'a> {
    /// Blocks in the grid: x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        [self.grid_x(), self.grid_y(), self.grid_z()].map(i32::cast_unsigned)
    }

    /// Threads in a block: x, y, z.
    pub fn block(&self) -> [u32; 3] {
        [self.block_x(), self.block_y(), self.block_z()].map(i32::cast_unsigned)
    }

    /// Blocks in a cluster: x, y, z. All 0 if the launch had no clusters.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        Some([self.cluster_x()?, self.cluster_y()?, self.cluster_z()?])
    }

    /// The mangled name, unless CUPTI gave none.
    ///
    /// # Safety
    /// CUPTI must still own the name: it shares one text among all records of a kernel and keeps it while it
    /// is not finalized, so within the buffer's completion callback this holds.
    pub unsafe fn name(&self) -> Option<&'a CStr> {
        let name = self.name_pointer();
        if name.is_null() {
            return None;
        }
        // SAFETY: the caller vouches for the text, and whoever made the reader for the pointer.
        Some(unsafe { CStr::from_ptr(name) })
    }
}
