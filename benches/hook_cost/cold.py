"""Launches with cold caches, in turn from 16 functions, in a stack of DEPTH functions, each a code object of its own. Prints what a launch
took in nanoseconds, the driver's own time included: the median.

    cold.py LIBRARY DEPTH KIB LAUNCHES
"""

import ctypes
import sys

cold = ctypes.PyDLL(sys.argv[1])
depth, launches = int(sys.argv[2]), int(sys.argv[4])
functions = {"launch": cold.launch_cold}
cold.begin_cold.argtypes = [ctypes.c_long, ctypes.c_long]


def define(source, module):
    exec(compile(source, "/a/folder/of/some/program/module_%d.py" % module, "exec"), functions)


LEAVES = 16
for leaf in range(LEAVES):
    define("def inner_%d(x):\n    y = [x, x]\n    launch()\n    return y\ndef leaf_%d(x):\n    return inner_%d(x + 1)\n" % (leaf, leaf, leaf), leaf)
lines = "".join("        leaf_%d(index)\n" % leaf for leaf in range(LEAVES))
define("def step_0():\n    for index in range(%d):\n%s" % (launches // LEAVES, lines), 0)
for index in range(1, depth - 3):
    define("def step_%d():\n    x = %d\n    y = [x, x]\n    result = step_%d()\n    return result\n" % (index, index, index - 1), index % 7)
cold.begin_cold(int(sys.argv[3]) << 10, 1)
functions["step_%d" % (depth - 4)]()
cold.median_ns.restype = ctypes.c_double
print("%.1f" % cold.median_ns())
