"""CUDA IPC by torch.multiprocessing: another process gets a tensor on the device by its handle and works on it in place."""
import torch
import torch.multiprocessing as multiprocessing


def work(requests, done):
    shared = requests.get(timeout=100)
    for _ in range(30):
        shared.add_(1)
    torch.cuda.synchronize()
    sum_here = shared.sum().item()
    del shared  # Given back before the owner ends.
    done.put(sum_here)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    requests, done = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(requests, done))
    child.start()
    tensor = torch.zeros(4096, device="cuda")
    for _ in range(10):
        tensor.add_(1)
    torch.cuda.synchronize()
    requests.put(tensor)
    print("there", done.get(timeout=100))
    child.join()
    print("here", tensor.sum().item(), "exit code", child.exitcode)
