"""Launches from a stack of DEPTH functions, each a code object of its own; prints ns a launch: hot, and after 1 MiB read."""

import ctypes
import sys

bursts = ctypes.PyDLL(sys.argv[1])
bursts.time_bursts.restype = ctypes.c_double
bursts.time_bursts.argtypes = [ctypes.c_long]
depth = int(sys.argv[2])


def innermost():
    return bursts.time_bursts(0), bursts.time_bursts(1 << 20)


functions = {"step_0": innermost}
for index in range(1, depth - 1):
    source = "def step_%d():\n    x = %d\n    y = [x, x]\n    result = step_%d()\n    return result\n" % (index, index, index - 1)
    exec(compile(source, "/a/folder/of/some/program/module_%d.py" % (index % 7), "exec"), functions)
bursts.begin_bursts()
print("%.1f %.1f" % functions["step_%d" % (depth - 2)]())
