"""PyTorch with other processes: torch_workers.py loader-fork|loader-spawn|loader-forkserver|processes-spawn|processes-forkserver|one-process

A DataLoader whose workers prepare batches for a device that the parent already uses, or PROCESSES processes, the parent
among them, that each do the same work on the device themselves; one-process does it once. Prints sums, so that wrong or
missing batches show.
"""
import sys

import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset

KIND, METHOD = sys.argv[1].split("-")
PROCESSES = 4  # harness/sections/reliability.py multiplies by it.


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((1024,), float(index))


def work(device_index, rank, results):
    """A fixed number of kernels in a process of its own."""
    x = torch.zeros(4096, device=torch.device("cuda", device_index))
    for _ in range(40):
        x.add_(rank + 1)
    torch.cuda.synchronize()
    results.put((rank, x.sum().item()))


def loader():
    device = torch.device("cuda", 0)
    total = torch.zeros(1024, device=device)
    for _ in range(2):  # Two epochs: the workers are started and ended twice.
        for batch in DataLoader(Numbers(), batch_size=16, num_workers=4, multiprocessing_context=METHOD, pin_memory=True):
            total += batch.to(device, non_blocking=True).sum(0)
    torch.cuda.synchronize()
    print("sum", total.sum().item())


def processes():
    context = multiprocessing.get_context(METHOD)
    results = context.Queue()
    children = [context.Process(target=work, args=(0, rank, results)) for rank in range(PROCESSES - 1)]
    for child in children:
        child.start()
    print("results", sorted(results.get(timeout=100) for _ in children))
    for child in children:
        child.join()
    print("exit codes", [child.exitcode for child in children])
    work(0, 9, results)
    print("parent", results.get(timeout=100))


def one():
    results = multiprocessing.get_context("spawn").Queue()
    work(0, 9, results)
    print("parent", results.get(timeout=100))


if __name__ == "__main__":
    {"loader": loader, "processes": processes, "one": one}[KIND]()
