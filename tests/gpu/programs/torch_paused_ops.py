"""Multiplies as often as each line of stdin says, and prints OBSERVED and whether PyTorch has observers of
its operators then: 1 or 0, by its own `at::hasGlobalCallbacks()`."""
import ctypes
import sys
from pathlib import Path

import torch

has_observers = ctypes.CDLL(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")["_ZN2at18hasGlobalCallbacksEv"]
has_observers.restype = ctypes.c_bool
value = torch.ones(16, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        value = value * 1.0
    torch.cuda.synchronize()
    print("OBSERVED", int(has_observers()), flush=True)
