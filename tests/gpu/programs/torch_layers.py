"""A model of a known structure, forward only: which share of the GPU's time each layer takes.

torch_layers.py [profile]: with `profile`, torch.profiler's own answer is printed, a line of JSON {layer: share} that counts the
device time under each layer's record_function. A `LAYER name` comment marks the line that calls a layer.
"""
import json
import sys

import torch

PROFILE = "profile" in sys.argv[1:]
STEPS = 30
torch.manual_seed(0)
device = torch.device("cuda", 0)
wide = torch.randn(1024, 4096, device=device) / 32
narrow = torch.randn(4096, 1024, device=device) / 64
image = torch.randn(16, 64, 56, 56, device=device)
filters = torch.randn(64, 64, 3, 3, device=device) / 24


def feed_forward(x):
    return torch.nn.functional.gelu(x @ wide) @ narrow


def normalise(x):
    return torch.nn.functional.layer_norm(x, (1024,))


def attend(x):
    heads = x.view(16, 64, 16, 64).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(1024, 1024)


def convolve(picture):
    return torch.relu(torch.nn.functional.conv2d(picture, filters, padding=1))


def layer(name):
    return torch.profiler.record_function(name)


def step(x):
    with layer("feed_forward"):
        x = feed_forward(x)  # LAYER feed_forward
    with layer("normalise"):
        x = normalise(x)  # LAYER normalise
    with layer("attend"):
        x = attend(x)  # LAYER attend
    with layer("convolve"):
        convolve(image)  # LAYER convolve
    return x


@torch.no_grad()
def run(steps):
    x = torch.ones(1024, 1024, device=device)
    for _ in range(steps):
        x = step(x)
    torch.cuda.synchronize()
    return x.sum().item()


run(20)
if PROFILE:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
        total = run(STEPS)
    layers = {event.key: event.device_time_total for event in profiler.key_averages() if event.key in ("feed_forward", "normalise", "attend", "convolve") and event.device_type == torch.autograd.DeviceType.CPU}
    print(json.dumps({name: time / sum(layers.values()) for name, time in layers.items()}))
else:
    total = run(STEPS)
print("total", total)
