"""A notebook without a browser: runs cells in an IPython shell, and prints what `%%gputrace` showed, a line of JSON each.

    notebook_cells.py

A line is {"text": …, "svg": …} of a flamegraph, or {"error": …} of a cell that failed. What cells print goes to stderr.
"""

import contextlib
import json
import sys

from IPython.core.interactiveshell import InteractiveShell

import gputrace.notebook

DRIVER = '''
import ctypes
PTX = ".version 8.0\\n.target sm_90\\n.address_size 64\\n" + "".join(
    ".visible .entry %s()\\n{\\n// sim.duration_ns = 100000\\nret;\\n}\\n" % name for name in ("early", "cell_one", "between", "cell_two"))
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3

def made(function, *arguments):
    handle = ctypes.c_void_p()
    assert function(ctypes.byref(handle), *arguments) == 0
    return handle

def launch(name, count):
    kernel = made(CUDA.cuModuleGetFunction, module, name.encode())
    for _ in range(count):
        assert CUDA.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
'''
BEGIN = '''
device = ctypes.c_int()
assert CUDA.cuInit(0) == 0 and CUDA.cuDeviceGet(ctypes.byref(device), 0) == 0
assert CUDA.cuCtxSetCurrent(made(CUDA.cuDevicePrimaryCtxRetain, device)) == 0
module = made(CUDA.cuModuleLoadData, PTX.encode())
'''


OUTPUT = sys.stdout


def say(**values):
    print(json.dumps(values), file=OUTPUT, flush=True)


def display(shown):
    bundle = shown._repr_mimebundle_()
    assert "<iframe" in bundle["text/html"] and bundle["text/plain"] == repr(shown)
    say(text=bundle["text/plain"], svg=bundle["image/svg+xml"])


gputrace.notebook.display = display
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gputrace")
for cell in [
    DRIVER,
    # The first use of CUDA is inside of a recorded cell.
    "%%gputrace\n" + BEGIN + "launch('early', 3)",
    "%%gputrace\nlaunch('cell_one', 5)",
    "launch('between', 7)",
    "%%gputrace --group-by none\nlaunch('cell_two', 11)",
    "%%gputrace\nprint('no GPU here')",
    "%%gputrace\nlaunch('cell_one', 2); raise ValueError('wrong')",
    "%%gputrace --no-such-option\nlaunch('cell_one', 1)",
    "%%gputrace --filter kernel=cell_two\nlaunch('cell_one', 4); launch('cell_two', 6)",
    # What somebody paused stays paused after the cell.
    "import gputrace.notebook; gputrace.notebook.Recorder().ctl('stop')",
    "%%gputrace\nlaunch('cell_two', 8)",
    "launch('between', 16)",
]:
    with contextlib.redirect_stdout(sys.stderr):
        ended = shell.run_cell(cell)
    if not ended.success:
        say(error=str(ended.error_in_exec))
