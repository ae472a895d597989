"""A launch in steps from a stack of DEPTH functions, each a code object of its own; without the GIL, as PyTorch launches.

    steps.py LIBRARY DEPTH OUT
"""

import ctypes
import sys

steps = ctypes.CDLL(sys.argv[1])
functions = {"step_0": lambda: steps.write_steps(sys.argv[3].encode())}
for index in range(1, int(sys.argv[2]) - 1):
    source = "def step_%d():\n    x = %d\n    y = [x, x]\n    result = step_%d()\n    return result\n" % (index, index, index - 1)
    exec(compile(source, "/a/folder/of/some/program/module_%d.py" % (index % 7), "exec"), functions)
steps.begin_steps()
functions["step_%d" % (int(sys.argv[2]) - 2)]()
