"""Two ranks on two GPUs that add up their gradients each step; rank 1 has four times the work, unless `mended` is given.

The last line says how long rank 0's loop took, by a stopwatch."""
import os
import sys
import tempfile
import time

# There may be no network: both are on this machine.
os.environ["NCCL_SOCKET_IFNAME"] = "lo"
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

STEPS = 600


def train(rank, meeting, layers):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    # With a device NCCL begins here, and not between the first operation and the loop.
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=2, device_id=device)
    weight = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16) / 64
    for step in range(STEPS + 3):
        if step == 3:
            torch.cuda.synchronize()
            began = time.perf_counter()
        value = weight
        for _ in range(layers[rank]):
            value = value @ weight  # work
        distributed.all_reduce(value)
    torch.cuda.synchronize()
    if rank == 0:
        print(f"loop {time.perf_counter() - began:.6f} s", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    layers = (10, 10) if sys.argv[1:] == ["mended"] else (5, 20)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(train, (os.path.join(folder, "meeting"), layers), nprocs=2, start_method="spawn")
