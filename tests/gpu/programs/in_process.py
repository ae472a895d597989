"""The workloads of `scripts/bench-overhead --in-process`: one of them makes steps until stdin is closed.

It prints READY once it is warm. Between two steps it looks for a line on stdin:

    measure STEPS MS STATE   two more steps, then at least so many steps and ms. It prints: BLOCK STEPS NS, then each
                             step's time in ns, with commas, and with --samples, of either kind of samples (speed.py)
                             each step's mean in ns; what they took is in NS, and not in a step's time
    profiler on|off          begins or ends torch.profiler, and prints DONE
    client on|off LIBRARY    begins or ends a CUPTI client (tests/gpu/cupti_client.c), and prints DONE or its error
    client on:TEXT LIBRARY   the same with settings, as cupti_client_set takes them
    flushes LIBRARY          how many flushes that client has made since the last time, what they took, and of how
                             many kernels records came meanwhile: FLUSHES COUNT NS KERNELS
    untraced on|off          takes gputrace's hooks out of the process, or puts them back, and prints DONE or its error

small, graph, gpu: as in torch_bench.py; with --replays N a step has so many of them before its wait, or of tiny's five kernels. llama: eager decoding with the Llama of
transformers (8 layers of 256, random weights), four tokens a step. tiny: kernels by the driver's own interface, also on the simulated device; --plant STATE=SHARE makes its steps longer in that
state, and --drift SHARE makes them longer with time, as tests of the benchmark need.
"""
import argparse
import ctypes
import os
import select
import sys
import time

import hook_tables
from speed import Speed

arguments = argparse.ArgumentParser()
arguments.add_argument("workload", choices=["small", "graph", "gpu", "llama", "tiny"])
arguments.add_argument("--plant", default="=0")
arguments.add_argument("--drift", type=float, default=0.0)
arguments.add_argument("--replays", type=int, default=1)
arguments.add_argument("--samples", action="store_true", help="take samples of the processor's speed in the midst of steps, in small, llama and tiny")
options = arguments.parse_args()
state = ""


def of_torch_bench(between=None):
    import torch
    import torch_bench

    make, warm_up, _ = torch_bench.WORKLOADS[options.workload]
    # The others' steps wait for the device, which works on meanwhile.
    call = make(between=between) if between and options.workload == "small" else make()

    def step():
        for _ in range(options.replays):
            call()
        torch.cuda.synchronize()

    return step, warm_up


def llama(between=None):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
                         max_position_embeddings=128, attn_implementation="eager", bos_token_id=1, eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).eval().to("cuda")
    if between:
        for layer in model.model.layers:
            layer.register_forward_pre_hook(lambda *_: between())
    prompt = torch.arange(2, 18).unsqueeze(0).to("cuda")
    mask = torch.ones_like(prompt)

    def step():
        with torch.no_grad():
            model.generate(prompt, attention_mask=mask, max_new_tokens=4, do_sample=False)
        torch.cuda.synchronize()

    return step, 5


def tiny(between):
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    ptx = b".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry kernel()\n{\nret;\n}\n"
    for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
                   cuda.cuCtxSetCurrent(context), cuda.cuModuleLoadData(ctypes.byref(module), ptx), cuda.cuModuleGetFunction(ctypes.byref(function), module, b"kernel")):
        assert status == 0, status
    where, share = options.plant.rsplit("=", 1)
    begin = time.monotonic()

    def step():
        if between:
            between()
        until = time.perf_counter() + 2e-3 * (1 + options.drift * (time.monotonic() - begin)) * (1 + (float(share) if state == where else 0))
        for _ in range(5 * options.replays):
            assert cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
        assert cuda.cuCtxSynchronize() == 0
        while time.perf_counter() < until:
            pass

    return step, 5


class Input:
    def __init__(self):
        self.rest, self.is_over = b"", False

    def line(self):
        """The next line, if there is one now."""
        while b"\n" not in self.rest and not self.is_over and select.select([0], [], [], 0)[0]:
            more = os.read(0, 4096)
            self.rest, self.is_over = self.rest + more, not more
        if b"\n" not in self.rest:
            return None
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


def client(word, library):
    client, settings = ctypes.CDLL(library), word.partition(":")[2]
    status = client.cupti_client_set(settings.encode()) if word != "off" else 0
    status = status or client.cupti_client_switch(int(word != "off"))
    return f"cupti client: error {status}" if status else "DONE"


def main():
    global state
    speed = Speed()
    step, warm_up = {"llama": llama, "tiny": tiny}.get(options.workload, of_torch_bench)(between=speed.sample if options.samples else None)
    for _ in range(warm_up):
        step()
    print("READY", flush=True)
    asked, profiler, tables = Input(), None, None
    while not asked.is_over:
        line = asked.line()
        if not line:
            step()
        elif line == "profiler on":
            import torch

            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            profiler.start()
            print("DONE", flush=True)
        elif line == "profiler off":
            profiler.stop()
            print("DONE", flush=True)
        elif line.startswith("untraced "):
            try:
                tables = tables or hook_tables.HookTables()
                tables.take_out(line == "untraced on")
                print("DONE", flush=True)
            except (OSError, RuntimeError) as error:
                print(error, flush=True)
        elif line.startswith("flushes "):
            took, kernels = ctypes.c_uint64(), ctypes.c_uint64()
            flushes = ctypes.CDLL(line.split(" ", 1)[1]).cupti_client_flushes
            flushes.restype = ctypes.c_uint64
            print("FLUSHES", flushes(ctypes.byref(took), ctypes.byref(kernels)), took.value, kernels.value, flush=True)
        elif line.startswith("client "):
            _, word, library = line.split(" ", 2)
            print(client(word, library), flush=True)
        else:
            _, steps, ms, state = line.split(" ", 3)
            step(), step()
            begin, measured = time.perf_counter_ns(), []
            while len(measured) < int(steps) or time.perf_counter_ns() - begin < int(ms) * 1_000_000:
                speed.begin()
                from_ns = time.perf_counter_ns()
                step()
                measured.append((time.perf_counter_ns() - from_ns - speed.ns, *speed.means()))
            columns = (",".join(map(str, column)) for column in zip(*measured))
            print(f"BLOCK {len(measured)} {time.perf_counter_ns() - begin}", *columns, flush=True)


if __name__ == "__main__":
    sys.exit(main())
