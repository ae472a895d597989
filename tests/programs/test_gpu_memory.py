"""Tests with limits on the GPU's memory, of which two fail and two hold."""

import ctypes

import pytest

CUDA = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20


@pytest.fixture(scope="module")
def model():
    context = ctypes.c_void_p()
    assert CUDA.cuInit(0) == 0
    assert CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert CUDA.cuCtxSetCurrent(context) == 0
    return allocate(32)


def allocate(mib):
    pointer = ctypes.c_uint64()
    assert CUDA.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB)) == 0
    return pointer


def free(pointer):
    assert CUDA.cuMemFree_v2(pointer) == 0


@pytest.mark.limit_gpu_memory("64 MiB")
@pytest.mark.limit_gpu_leaks("0 B")
def test_holds(model):
    free(allocate(16))


@pytest.mark.limit_gpu_memory("64 MiB")
def test_takes_too_much(model):
    free(allocate(48))


@pytest.mark.limit_gpu_leaks("0 B")
def test_leaks(model):
    for _ in range(3):
        allocate(2)


@pytest.mark.limit_gpu_memory("40 MiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_after_the_leak_holds(model):
    allocate(1)
