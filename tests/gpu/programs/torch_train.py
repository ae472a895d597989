"""A deterministic training run with a bit of everything: convolution, attention, embedding, layer norm, AdamW, copies.

Prints the losses as exact hexadecimal floats, so that two runs can be compared to the last bit. With --profile, the
whole GPU work runs under torch.profiler and the Chrome trace is written to that file.
"""
import argparse
import contextlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

arguments = argparse.ArgumentParser()
arguments.add_argument("--steps", type=int, default=10)
arguments.add_argument("--width", type=int, default=128)
arguments.add_argument("--batch", type=int, default=8)
arguments.add_argument("--layers", type=int, default=2)
arguments.add_argument("--exit", type=int, default=0)
arguments.add_argument("--profile")
arguments.add_argument("--device", type=int, default=0)
options = arguments.parse_args()


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.encoder(x))


def train():
    device = torch.device("cuda", options.device)
    model = Model(options.width, options.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(options.steps):
        tokens = torch.randint(0, 1000, (options.batch, 65), generator=generator).pin_memory().to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        kept = model.head.weight.detach().clone()  # A device-to-device copy.
        losses.append(loss.detach() + 0 * kept[0, 0])
    total = torch.stack(losses).cpu()
    torch.cuda.synchronize(device)
    return [value.hex() for value in total.tolist()]


def main():
    torch.manual_seed(0)
    # Not warn_only: with it, memory-efficient attention would stay on its non-deterministic path.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.init()
    torch.cuda.set_device(options.device)
    torch.cuda.synchronize()
    profiler = contextlib.nullcontext()
    if options.profile:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    with profiler:
        losses = train()
    if options.profile:
        profiler.export_chrome_trace(options.profile)
    for step, loss in enumerate(losses):
        print(f"step {step} loss {loss}")
    sys.stdout.flush()
    return options.exit


sys.exit(main())
