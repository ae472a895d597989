"""Worker processes by multiprocessing, each with launches of its own, counted on standard error.

Arguments: the start method (fork, spawn, forkserver), and who uses CUDA: `all` (the parent only
after its workers where they are forked), `parent` (before it makes them, and they never).
"""

import multiprocessing
import os
import sys

from cuda.bindings import driver

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry first_kernel()
{
    // sim.duration_ns = 20000
    ret;
}
"""


def ok(answer):
    status, values = answer[0], answer[1:]
    if status != driver.CUresult.CUDA_SUCCESS:
        raise AssertionError(f"call failed: {status}")
    return values[0] if len(values) == 1 else values


def launch(count):
    """Uses CUDA for the first time in this process, and says how often it launched."""
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))
    kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(PTX)), b"first_kernel"))
    for _ in range(count):
        ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    ok(driver.cuCtxSynchronize())
    os.write(2, f"launches {os.getpid()} {count}\n".encode())


def work(number, uses_cuda, results):
    if uses_cuda:
        launch(10 * number)
    results.put((number, number * number))
    results.close()
    results.join_thread()
    sys.exit(number)


def square(number):
    return number * number


def main():
    method, users = sys.argv[1:]
    context = multiprocessing.get_context(method)
    parent_first = users == "parent" or method != "fork"
    if parent_first:
        launch(7)
    results = context.Queue()
    workers = [context.Process(target=work, args=(number, users == "all", results)) for number in range(1, 5)]
    for worker in workers:
        worker.start()
    print(sorted(results.get() for _ in workers))
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
    # A pool ends its workers by SIGTERM.
    with context.Pool(2) as pool:
        print(pool.map(square, range(10)))
    if not parent_first:
        launch(7)
    return 6


if __name__ == "__main__":
    sys.exit(main())
