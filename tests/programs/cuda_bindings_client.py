"""A client of the CUDA driver that nobody here wrote: the PyPI package cuda-bindings, 12.9 and 13.x.

It initialises, queries, loads a module from PTX text, allocates, copies, launches, and
uses events, streams, graphs (captured and built by hand), memory pools and libraries,
and checks all that it sees. Exit code 0 means that everything was as expected.

GPUTRACE_SIM_DEVICES, if it is set, is the number of devices that it expects.
"""

import ctypes
import os
import sys
import threading
import time

from cuda.bindings import driver

PTX = b"""
.version 8.0
.target sm_90
.address_size 64

.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};

.visible .entry scale(
    .param .u64 data,
    .param .u32 count
)
{
    // sim.duration_ns = 50000
    // sim.registers = 40
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    .shared .align 4 .b8 tile[1024];
    ret;
}

.visible .entry empty()
{
    ret;
}
"""
SCALE_NS = 50_000
SUCCESS = driver.CUresult.CUDA_SUCCESS


def ok(answer):
    """The value of a call that has to succeed."""
    status, values = answer[0], answer[1:]
    if status != SUCCESS:
        raise AssertionError(f"call failed: {driver.cuGetErrorName(status)[1]}")
    return values[0] if len(values) == 1 else values


def fails(answer, status):
    assert answer[0] == status, f"{answer[0]} instead of {status}"


def eq(seen, wanted):
    assert seen == wanted, f"{seen!r} instead of {wanted!r}"


def create_context(device):
    """cuCtxCreate has one argument more in 13."""
    try:
        return ok(driver.cuCtxCreate(0, device))
    except TypeError:
        return ok(driver.cuCtxCreate(None, 0, device))


class Program:
    def __init__(self):
        fails(driver.cuDeviceGetCount(), driver.CUresult.CUDA_ERROR_NOT_INITIALIZED)
        ok(driver.cuInit(0))
        self.device = ok(driver.cuDeviceGet(0))
        self.context = ok(driver.cuDevicePrimaryCtxRetain(self.device))
        ok(driver.cuCtxSetCurrent(self.context))
        self.module = ok(driver.cuModuleLoadData(PTX))
        self.scale = ok(driver.cuModuleGetFunction(self.module, b"scale"))
        self.empty = ok(driver.cuModuleGetFunction(self.module, b"empty"))

    def launch(self, stream, memory, blocks=4):
        arguments = ((int(memory), 7), (ctypes.c_void_p, ctypes.c_uint32))
        ok(driver.cuLaunchKernel(self.scale, blocks, 1, 1, 128, 1, 1, 0, stream, arguments, 0))

    def devices(self):
        expected = int(os.environ.get("GPUTRACE_SIM_DEVICES", "1"))
        eq(ok(driver.cuDeviceGetCount()), expected)
        assert ok(driver.cuDriverGetVersion()) >= 12000
        name = ok(driver.cuDeviceGetName(100, self.device)).split(b"\0")[0].strip()
        eq(name, b"gputrace simulated device")
        attribute = driver.CUdevice_attribute
        get = lambda which: ok(driver.cuDeviceGetAttribute(which, self.device))
        eq(get(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132)
        eq(get(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9)
        eq(get(attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32)
        assert ok(driver.cuDeviceTotalMem(self.device)) > 1 << 30
        assert len(ok(driver.cuDeviceGetUuid(self.device)).bytes) == 16
        fails(driver.cuDeviceGet(expected), driver.CUresult.CUDA_ERROR_INVALID_DEVICE)
        flags, active = ok(driver.cuDevicePrimaryCtxGetState(self.device))
        eq(active, 1)
        eq(int(ok(driver.cuCtxGetCurrent())), int(self.context))

    def modules(self):
        attribute = driver.CUfunction_attribute
        get = lambda which: ok(driver.cuFuncGetAttribute(which, self.scale))
        eq(get(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS), 40)
        eq(get(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024)
        eq(ok(driver.cuFuncGetName(self.scale)), b"scale")
        # 40 registers: 4 schedulers x 16384 / (40 x 32) = 48 warps, 6 blocks of 8 warps.
        eq(ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.scale, 256, 0)), 6)
        address, length = ok(driver.cuModuleGetGlobal(self.module, b"table"))
        eq(length, 16)
        values = (ctypes.c_uint32 * 4)()
        ok(driver.cuMemcpyDtoH(ctypes.addressof(values), address, 16))
        eq(list(values), [1, 2, 3, 4])
        fails(driver.cuModuleGetFunction(self.module, b"absent"), driver.CUresult.CUDA_ERROR_NOT_FOUND)
        fails(driver.cuModuleLoadData(b"no module"), driver.CUresult.CUDA_ERROR_INVALID_IMAGE)

    def libraries(self):
        library = ok(driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
        kernel = ok(driver.cuLibraryGetKernel(library, b"empty"))
        function = ok(driver.cuKernelGetFunction(kernel))
        ok(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0))
        ok(driver.cuLaunchKernel(driver.CUfunction(int(kernel)), 1, 1, 1, 32, 1, 1, 0, 0, 0, 0))
        ok(driver.cuCtxSynchronize())
        ok(driver.cuLibraryUnload(library))
        fails(
            driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0),
            driver.CUresult.CUDA_ERROR_INVALID_HANDLE,
        )

    def memory(self):
        before, total = ok(driver.cuMemGetInfo())
        size = 1 << 20
        one, other = ok(driver.cuMemAlloc(size)), ok(driver.cuMemAlloc(size))
        eq(ok(driver.cuMemGetInfo())[0], before - 2 * size)
        source = (ctypes.c_ubyte * size).from_buffer_copy(os.urandom(size))
        target = (ctypes.c_ubyte * size)()
        ok(driver.cuMemcpyHtoD(one, ctypes.addressof(source), size))
        ok(driver.cuMemcpyDtoD(other, one, size))
        ok(driver.cuMemsetD32(int(other) + 16, 0x01020304, 4))
        ok(driver.cuMemcpyDtoH(ctypes.addressof(target), other, size))
        wanted = bytearray(bytes(source))
        wanted[16:32] = bytes([4, 3, 2, 1]) * 4
        assert bytes(target) == bytes(wanted), "bytes were not copied"
        fails(driver.cuMemcpyDtoH(ctypes.addressof(target), other, size + 1), driver.CUresult.CUDA_ERROR_INVALID_VALUE)
        kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        eq(int(ok(driver.cuPointerGetAttribute(kind, one))), 2)
        base, length = ok(driver.cuMemGetAddressRange(int(one) + 100))
        eq((int(base), length), (int(one), size))
        pinned = ok(driver.cuMemAllocHost(4096))
        eq(int(ok(driver.cuPointerGetAttribute(kind, driver.CUdeviceptr(int(pinned))))), 1)
        ok(driver.cuMemFreeHost(pinned))
        ok(driver.cuMemFree(one))
        ok(driver.cuMemFree(other))
        fails(driver.cuMemFree(other), driver.CUresult.CUDA_ERROR_INVALID_VALUE)
        fails(driver.cuMemAlloc(total + 1), driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        eq(ok(driver.cuMemGetInfo())[0], before)

    def streams_and_events(self):
        memory = ok(driver.cuMemAlloc(4096))
        non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        one, other = ok(driver.cuStreamCreate(non_blocking)), ok(driver.cuStreamCreate(non_blocking))
        start, middle, end = (ok(driver.cuEventCreate(0)) for _ in range(3))
        began = time.monotonic_ns()
        ok(driver.cuEventRecord(start, one))
        for _ in range(20):
            self.launch(one, memory)
        ok(driver.cuEventRecord(middle, one))
        ok(driver.cuStreamWaitEvent(other, middle, 0))
        self.launch(other, memory)
        ok(driver.cuEventRecord(end, other))
        ok(driver.cuEventSynchronize(end))
        ok(driver.cuEventQuery(middle))
        ok(driver.cuStreamQuery(one))
        first = ok(driver.cuEventElapsedTime(start, middle)) * 1e6
        second = ok(driver.cuEventElapsedTime(middle, end)) * 1e6
        # On a busy machine the device waits for its launches.
        most = max(50e6, time.monotonic_ns() - began)
        assert 20 * SCALE_NS <= first < 20 * SCALE_NS + most, first
        assert SCALE_NS * 0.999 <= second < SCALE_NS + most, second
        if os.environ.get("GPUTRACE_SIM_PACE") != "off":
            began = time.monotonic_ns()
            for _ in range(100):
                self.launch(one, memory)
            fails(driver.cuStreamQuery(one), driver.CUresult.CUDA_ERROR_NOT_READY)
            ok(driver.cuStreamSynchronize(one))
            assert time.monotonic_ns() - began >= 100 * SCALE_NS, "the wait was too short"
        least, greatest = ok(driver.cuCtxGetStreamPriorityRange())
        urgent = ok(driver.cuStreamCreateWithPriority(non_blocking, greatest))
        eq(ok(driver.cuStreamGetPriority(urgent)), greatest)
        for stream in (one, other, urgent):
            ok(driver.cuStreamDestroy(stream))
        fails(driver.cuStreamQuery(one), driver.CUresult.CUDA_ERROR_INVALID_HANDLE)
        for event in (start, middle, end):
            ok(driver.cuEventDestroy(event))
        ok(driver.cuMemFree(memory))

    def host_functions(self):
        seen = []
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.append(data))
        function = driver.CUhostFn(_ptr=ctypes.addressof(ctypes.c_void_p.from_buffer(callback)))
        stream = ok(driver.cuStreamCreate(0))
        memory = ok(driver.cuMemAlloc(64))
        target = (ctypes.c_ubyte * 64)()
        ok(driver.cuLaunchHostFunc(stream, function, 42))
        ok(driver.cuMemsetD8Async(memory, 9, 64, stream))
        ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(target), memory, 64, stream))
        ok(driver.cuStreamSynchronize(stream))
        eq((seen, bytes(target)), ([42], bytes([9]) * 64))
        ok(driver.cuMemFree(memory))
        ok(driver.cuStreamDestroy(stream))

    def captured_graph(self):
        memory = ok(driver.cuMemAlloc(4096))
        target = (ctypes.c_ubyte * 4096)()
        stream, side = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
        fork, join = ok(driver.cuEventCreate(2)), ok(driver.cuEventCreate(2))
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        ok(driver.cuStreamBeginCapture(stream, mode))
        ok(driver.cuMemsetD8Async(memory, 5, 4096, stream))
        ok(driver.cuEventRecord(fork, stream))
        ok(driver.cuStreamWaitEvent(side, fork, 0))
        self.launch(side, memory)
        self.launch(stream, memory)
        ok(driver.cuEventRecord(join, side))
        ok(driver.cuStreamWaitEvent(stream, join, 0))
        ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(target), memory, 4096, stream))
        status = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
        eq(ok(driver.cuStreamIsCapturing(stream)), status)
        graph = ok(driver.cuStreamEndCapture(stream))
        eq(bytes(target), bytes(4096))
        nodes = ok(driver.cuGraphGetNodes(graph))[1]
        kinds = sorted(int(ok(driver.cuGraphNodeGetType(node))) for node in ok(driver.cuGraphGetNodes(graph, nodes))[0])
        eq(kinds, [0, 0, 1, 2])
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        for _ in range(3):
            ok(driver.cuGraphLaunch(executable, stream))
        ok(driver.cuStreamSynchronize(stream))
        eq(bytes(target), bytes([5]) * 4096)
        ok(driver.cuGraphExecUpdate(executable, graph))
        ok(driver.cuGraphExecDestroy(executable))
        ok(driver.cuGraphDestroy(graph))
        # What must not be done while capturing spoils the capture.
        ok(driver.cuStreamBeginCapture(stream, mode))
        fails(driver.cuStreamSynchronize(stream), driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        fails(driver.cuStreamEndCapture(stream), driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        ok(driver.cuMemFree(memory))

    def built_graph(self):
        memory = ok(driver.cuMemAlloc(1024))
        graph = ok(driver.cuGraphCreate(0))
        fill = driver.CUDA_MEMSET_NODE_PARAMS()
        fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory, 0x11223344, 4, 256, 1
        first = ok(driver.cuGraphAddMemsetNode(graph, None, 0, fill, self.context))
        kernel = driver.CUDA_KERNEL_NODE_PARAMS()
        kernel.func = self.empty
        kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1
        kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ = 64, 1, 1
        second = ok(driver.cuGraphAddKernelNode(graph, [first], 1, kernel))
        third = ok(driver.cuGraphAddEmptyNode(graph, [first, second], 2))
        child = ok(driver.cuGraphCreate(0))
        ok(driver.cuGraphAddKernelNode(child, None, 0, kernel))
        ok(driver.cuGraphAddChildGraphNode(graph, [third], 1, child))
        read = ok(driver.cuGraphKernelNodeGetParams(second))
        eq((read.blockDimX, int(read.func)), (64, int(self.empty)))
        clone = ok(driver.cuGraphClone(graph))
        eq(ok(driver.cuGraphGetNodes(clone))[1], 4)
        stream = ok(driver.cuStreamCreate(0))
        for which in (graph, clone):
            executable = ok(driver.cuGraphInstantiate(which, 0))
            ok(driver.cuGraphLaunch(executable, stream))
            ok(driver.cuStreamSynchronize(stream))
            ok(driver.cuGraphExecDestroy(executable))
        word = ctypes.c_uint32()
        ok(driver.cuMemcpyDtoH(ctypes.addressof(word), int(memory) + 1020, 4))
        eq(word.value, 0x11223344)
        for which in (graph, clone, child):
            ok(driver.cuGraphDestroy(which))
        ok(driver.cuStreamDestroy(stream))
        ok(driver.cuMemFree(memory))

    def pools(self):
        attribute = driver.CUmemPool_attribute
        stream = ok(driver.cuStreamCreate(0))
        default = ok(driver.cuDeviceGetDefaultMemPool(self.device))
        one = ok(driver.cuMemAllocAsync(1 << 16, stream))
        used = lambda pool: int(ok(driver.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)))
        eq(used(default), 1 << 16)
        ok(driver.cuMemsetD8Async(one, 1, 1 << 16, stream))
        ok(driver.cuMemFreeAsync(one, stream))
        ok(driver.cuStreamSynchronize(stream))
        eq(used(default), 0)
        properties = driver.CUmemPoolProps()
        properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        pool = ok(driver.cuMemPoolCreate(properties))
        other = ok(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
        eq(used(pool), 4096)
        ok(driver.cuMemFreeAsync(other, stream))
        ok(driver.cuStreamSynchronize(stream))
        ok(driver.cuMemPoolDestroy(pool))
        ok(driver.cuStreamDestroy(stream))

    def virtual_memory(self):
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        option = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        size = ok(driver.cuMemGetAllocationGranularity(properties, option))
        address = ok(driver.cuMemAddressReserve(2 * size, 0, 0, 0))
        handle = ok(driver.cuMemCreate(size, properties, 0))
        access = driver.CUmemAccessDesc()
        access.location = properties.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        for at in (int(address), int(address) + size):
            ok(driver.cuMemMap(at, size, 0, handle, 0))
            ok(driver.cuMemSetAccess(at, size, [access], 1))
        ok(driver.cuMemRelease(handle))
        ok(driver.cuMemsetD8(address, 77, 16))
        seen = (ctypes.c_ubyte * 16)()
        ok(driver.cuMemcpyDtoH(ctypes.addressof(seen), int(address) + size, 16))
        eq(bytes(seen), bytes([77]) * 16)
        for at in (int(address), int(address) + size):
            ok(driver.cuMemUnmap(at, size))
        ok(driver.cuMemAddressFree(address, 2 * size))

    def contexts_and_peers(self):
        context = create_context(self.device)
        eq(int(ok(driver.cuCtxGetCurrent())), int(context))
        fails(
            driver.cuLaunchKernel(self.empty, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0),
            driver.CUresult.CUDA_ERROR_INVALID_HANDLE,
        )
        ok(driver.cuCtxDestroy(context))
        ok(driver.cuCtxSetCurrent(self.context))
        if ok(driver.cuDeviceGetCount()) < 2:
            return
        peer = ok(driver.cuDeviceGet(1))
        eq(ok(driver.cuDeviceCanAccessPeer(self.device, peer)), 1)
        there = ok(driver.cuDevicePrimaryCtxRetain(peer))
        ok(driver.cuCtxEnablePeerAccess(there, 0))
        here = ok(driver.cuMemAlloc(256))
        ok(driver.cuCtxPushCurrent(there))
        far = ok(driver.cuMemAlloc(256))
        ok(driver.cuMemsetD8(far, 33, 256))
        ok(driver.cuCtxPopCurrent())
        ok(driver.cuMemcpyPeer(here, self.context, far, there, 256))
        seen = (ctypes.c_ubyte * 256)()
        ok(driver.cuMemcpyDtoH(ctypes.addressof(seen), here, 256))
        eq(bytes(seen), bytes([33]) * 256)
        ok(driver.cuMemFree(here))
        ok(driver.cuDevicePrimaryCtxRelease(peer))

    def threads(self):
        memory, failed = ok(driver.cuMemAlloc(64)), []

        def work():
            try:
                ok(driver.cuCtxSetCurrent(self.context))
                stream = ok(driver.cuStreamCreate(1))
                for _ in range(200):
                    self.launch(stream, memory, 1)
                ok(driver.cuStreamSynchronize(stream))
                ok(driver.cuStreamDestroy(stream))
            except BaseException as error:  # Reported by the main thread.
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        eq(failed, [])
        ok(driver.cuMemFree(memory))

    def done(self):
        ok(driver.cuCtxSynchronize())
        ok(driver.cuModuleUnload(self.module))
        fails(driver.cuModuleGetFunction(self.module, b"empty"), driver.CUresult.CUDA_ERROR_INVALID_HANDLE)
        ok(driver.cuDevicePrimaryCtxRelease(self.device))


def main():
    program = Program()
    steps = [name for name in vars(Program) if not name.startswith("_") and name not in ("launch", "done")]
    for name in steps + ["done"]:
        try:
            getattr(program, name)()
        except Exception as error:
            print(f"cuda_bindings_client: {name}: {type(error).__name__}: {error}", file=sys.stderr)
            raise
    print(f"cuda_bindings_client: {len(steps) + 1} parts passed")


if __name__ == "__main__":
    main()
