"""A fixed amount of GPU work with torch.profiler (and Proton) around parts of it, and none around the rest.

torch_windows.py MODE DIR [plain [only=PROFILER,…]]: MODE is once, loop, schedule, stacks, proton, torch-proton or
proton-torch; each window's Chrome trace goes to DIR/window-N.json, Proton's to DIR/proton-N.hatchet. With `plain` the same
work runs without any profiler, to be counted by somebody else. Prints a checksum of the results, which profiler refused,
and which profilers' windows did their work: one that refuses does none, and `only` leaves the others' out.
"""
import contextlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

MODE, FOLDER, PLAIN = sys.argv[1], sys.argv[2], "plain" in sys.argv[3:]
ONLY = next((option[5:].split(",") for option in sys.argv[3:] if option.startswith("only=")), None)
worked = []
WINDOWS, STEPS = 50, 4 if MODE == "loop" else 20
ACTIVITIES = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]

torch.manual_seed(0)
device = torch.device("cuda", 0)
weight = torch.randn(512, 512, device=device) / 23
host = torch.randn(512, 512).pin_memory()
state = torch.zeros(512, 512, device=device)


def step():
    """Kernels, copies both ways and a memset; no random numbers, nothing that depends on time."""
    global state
    x = host.to(device, non_blocking=True)
    state = torch.tanh(state + x @ weight)
    state = torch.nn.functional.layer_norm(state, (512,))
    scratch = torch.empty(512, 512, device=device)
    scratch.zero_()
    scratch.copy_(state)
    return scratch.sum().item()


def steps(number):
    return sum(step() for _ in range(number))


def export(profiler, number):
    profiler.export_chrome_trace(os.path.join(FOLDER, f"window-{number}.json"))


def torch_window(number, **options):
    with contextlib.nullcontext() if PLAIN else torch.profiler.profile(activities=ACTIVITIES, **options) as profiler:
        with torch.profiler.record_function("window"):
            steps(STEPS)
            torch.cuda.synchronize()
    worked.append("torch")
    if profiler:
        export(profiler, number)


def triton_work(number):
    import triton
    from triton_kernel import add_one
    x = torch.zeros(10000, device=device)
    for _ in range(number):
        add_one[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    return x.sum().item()


def proton_window(number):
    import triton.profiler as proton
    session = None if PLAIN else proton.start(os.path.join(FOLDER, f"proton-{number}"), context="shadow", data="tree")
    try:
        steps(STEPS)
        print("triton", triton_work(2 * STEPS))
        torch.cuda.synchronize()
        worked.append("proton")
    finally:
        if not PLAIN:
            proton.finalize(session)


def attempt(what, function, number):
    """A profiler that refuses is part of the outcome, not the end of it."""
    if ONLY is not None and what not in ONLY:
        return
    try:
        function(number)
        print(f"{what}: done")
    except Exception as error:  # Whatever a profiler raises.
        print(f"{what}: {type(error).__name__}")
        print(f"INFO {what}: {error}", file=sys.stderr)


def scheduled():
    number = iter(range(100))
    options = {"schedule": torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=3), "on_trace_ready": lambda profiler: export(profiler, next(number))}
    with contextlib.nullcontext() if PLAIN else torch.profiler.profile(activities=ACTIVITIES, **options) as profiler:
        for _ in range(14):
            steps(1)
            torch.cuda.synchronize()
            if profiler:
                profiler.step()


total = steps(3)
if MODE == "once":  # Its kernel times are compared: let the clocks rise first.
    large = torch.zeros(4096, 4096, device=device)
    for _ in range(150):
        torch.mm(large, large)
torch.cuda.synchronize()
if MODE in ("once", "stacks"):
    torch_window(0, with_stack=MODE == "stacks")
elif MODE == "loop":
    for window in range(WINDOWS):
        torch_window(window)
        total += steps(1)
elif MODE == "schedule":
    scheduled()
elif MODE in ("proton", "torch-proton", "proton-torch"):
    triton_work(2)
    for number, which in enumerate(MODE.split("-")):
        attempt(which, torch_window if which == "torch" else proton_window, number)
        total += steps(1)
    print("worked", ",".join(worked))
else:
    sys.exit(3)
total += steps(2)
torch.cuda.synchronize()
print("total", total.hex(), flush=True)
