"""PyTorch programs with one fault each, and their mended twins.

    torch_insight.py FAULT [mended|ranges]

ranges: with an NVTX range around each module's forward, named by its class.

The comments at the ends of lines are names that the test knows the lines by. The last lines say how long the loop took, and the time from the first operation
to the last, by a stopwatch.
"""

import ctypes
import importlib
import queue
import sys
import threading
import time

import torch

DEVICE = torch.device("cuda")
MENDED = sys.argv[2:] == ["mended"]
RANGES = sys.argv[2:] == ["ranges"]
STEPS = 60


def weights(size, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return torch.randn(size, size, device=DEVICE, dtype=dtype) / size**0.5


def busy(steps):
    """A GPU that always has something to do."""
    weight = weights(4096)
    weight @ weight
    yield
    for _ in range(steps * 40):
        value = weight @ weight


def sync(steps):
    weight = weights(2048)
    (weight @ weight)[0, 0].item()
    yield
    for _ in range(steps * 50):
        value = weight @ weight
        if not MENDED and value[0, 0].item() > 1e30:  # sync
            break


def tiny(steps):
    values = torch.ones(64, device=DEVICE)

    def chain(value):
        for _ in range(100):
            value = value * 1.0001 + 0.1  # tiny
        return value

    chain(values)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        chain(values)
    torch.cuda.synchronize()
    if MENDED:
        with torch.cuda.graph(graph):
            chain(values)
    yield
    for _ in range(steps * 10):
        if MENDED:
            graph.replay()
        else:
            chain(values)


def pageable(steps):
    weight = weights(2048)
    batch = torch.ones(4096, 2048, dtype=torch.bfloat16)
    if MENDED:
        batch = batch.pin_memory()
    batch.to(DEVICE, non_blocking=True) @ weight
    yield
    for _ in range(steps):
        on_gpu = batch.to(DEVICE, non_blocking=True)  # copy
        for _ in range(4):
            on_gpu = on_gpu @ weight


def streams(steps):
    """Kernels of one block on the default stream and on another one, which blocks unless it is mended."""
    handle = ctypes.c_void_p()
    # A context that is current, which `torch.cuda.init()` alone does not make.
    torch.zeros(1, device=DEVICE)
    assert ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), 1 if MENDED else 0) == 0
    other = torch.cuda.ExternalStream(handle.value)
    torch.cuda._sleep(1000)
    yield
    for _ in range(steps * 10):
        torch.cuda._sleep(200_000)  # default
        with torch.cuda.stream(other):
            torch.cuda._sleep(200_000)


def prepared():
    time.sleep(0.004)
    return torch.ones(64, 2048, dtype=torch.bfloat16)


def batches(steps):
    if not MENDED:
        for _ in range(steps):
            yield prepared()
        return
    # Ahead of the loop, in four threads: sleeping needs no interpreter lock.
    ready, left = queue.Queue(maxsize=64), iter(range(steps))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if next(left, None) is None:
                    return
            ready.put(prepared())

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(steps):
        yield ready.get()


def loader(steps):
    weight = weights(4096)
    small = weight[:2048, :2048].contiguous()
    prepared().to(DEVICE) @ small
    weight @ weight
    yield
    for batch in batches(steps):
        batch = batch.to(DEVICE)  # load
        batch @ small
        for _ in range(12):
            value = weight @ weight  # compute


def recompile(steps):
    import cupy

    source = "extern \"C\" __global__ void scale(float *x) { x[threadIdx.x] *= %d.0f; }"
    values = cupy.ones(256, dtype=cupy.float32)
    weight = weights(4096)
    kept = cupy.RawKernel(source % 1, "scale")
    kept((1,), (256,), (values,))
    weight @ weight
    yield
    for step in range(min(steps, 40)):
        kernel = kept if MENDED else cupy.RawKernel(source % (step + time.time_ns()), "scale", options=("--std=c++14",))
        kernel((1,), (256,), (values,))  # compile
        value = weight @ weight


def llama(steps):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=8, max_position_embeddings=512)
    model = LlamaForCausalLM(config).to(DEVICE).eval()
    tokens = torch.ones(1, 4, dtype=torch.long, device=DEVICE)

    def decode(count):
        with torch.no_grad():
            model.generate(tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)  # decode

    decode(4)
    yield
    decode(min(steps, 60))


def put_ranges():
    from torch.nn.modules import module

    # Hooks that return nothing: anything else would replace what is given, or the result.
    def begin(inside, _given):
        torch.cuda.nvtx.range_push("module " + type(inside).__name__)

    def end(_inside, _given, _result):
        torch.cuda.nvtx.range_pop()

    module.register_module_forward_pre_hook(begin)
    module.register_module_forward_hook(end)


def main():
    if RANGES:
        put_ranges()
    # What is imported after the first operation is idle time of the GPU.
    for name in {"llama": ["transformers"], "recompile": ["cupy"]}.get(sys.argv[1], []):
        importlib.import_module(name)
    if sys.argv[1] == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM  # noqa: F401
    torch.zeros(1, device=DEVICE)
    torch.cuda.synchronize()
    first = time.perf_counter()
    program = globals()[sys.argv[1]](STEPS)
    next(program)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in program:
        pass
    torch.cuda.synchronize()
    ended = time.perf_counter()
    print(f"loop {ended - began:.6f} s")
    print(f"all {ended - first:.6f} s")


main()
