"""What a program sees of its own children once CUDA is up: wait(-1) must return these and no others, and a captured
CUDA child must end its pipes promptly. Prints only what must be the same with and without a tracer; timings and the
number of SIGCHLDs seen while CUDA started go to stderr. wait_children.py VADD
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

signals = []
signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
driver = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert driver.cuInit(0) == 0
assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
time.sleep(0.5)
print("children before:", end=" ")
try:
    print("a stranger", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none")
print(f"INFO sigchld_at_start={len(signals)}", file=sys.stderr)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)

# Kept: subprocess itself waits for a child of which nobody keeps the object, if it has ended by then.
spawned = {code: subprocess.Popen(["/bin/sh", "-c", f"exit {code}"]) for code in (3, 4)}
own = {child.pid: f"spawned {code}" for code, child in spawned.items()}
for code in (5, 6):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    own[pid] = f"forked {code}"
seen = []
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    seen.append(f"{own.pop(pid, 'a stranger')} -> {os.waitstatus_to_exitcode(status)}")
print("waited:", "; ".join(sorted(seen)), "| unseen:", len(own))

for command in ([sys.argv[1], "7"], ["/bin/sh", "-c", f"{sys.argv[1]} 0 | cat"]):
    start = time.monotonic()
    child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    print("captured:", child.returncode, child.stdout)
    print(f"INFO captured_seconds={time.monotonic() - start:.2f}", file=sys.stderr)
sys.stdout.flush()
sys.exit(0)
