"""DistributedDataParallel: ddp_train.py nccl|gloo RANKS: each rank a process; they take the GPUs in turn, so that gloo's may share one."""
import os
import sys
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# There may be no network: all are on this machine.
os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, backend, ranks, meeting, results):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.manual_seed(rank)
    for _ in range(10):
        x = torch.randn(32, 64).to(device)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    distributed.all_reduce(total)
    torch.cuda.synchronize()
    results.put((rank, f"{total.item():.3g}"))
    distributed.destroy_process_group()


if __name__ == "__main__":
    backend, ranks = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        results = multiprocessing.get_context("spawn").SimpleQueue()
        multiprocessing.spawn(train, (backend, ranks, os.path.join(folder, "meeting"), results), nprocs=ranks)
        print(backend, sorted(results.get() for _ in range(ranks)))
