"""Launches from a stack of DEPTH functions, each a code object of its own; prints ns a launch: hot; after 1 MiB read; the mean of
launches by Python from 64 lines in turn; and the same while between two turns another code object launches, and an older one ends.
Last, of how many launches of the last two the time was left out."""

import ctypes
import sys

bursts = ctypes.PyDLL(sys.argv[1])
bursts.time_bursts.restype = bursts.mean_of_noted.restype = ctypes.c_double
bursts.time_bursts.argtypes = [ctypes.c_long]
bursts.launch_once.argtypes = []
bursts.noted_and_left_out.restype = ctypes.c_long
depth = int(sys.argv[2])
TURNS = 3000


def innermost():
    return bursts.time_bursts(0), bursts.time_bursts(1 << 20)


def chain(innermost):
    """A function that calls one that calls ... that calls that one."""
    functions = {"step_0": innermost}
    for index in range(1, depth - 1):
        source = "def step_%d():\n    x = %d\n    y = [x, x]\n    result = step_%d()\n    return result\n" % (index, index, index - 1)
        exec(compile(source, "/a/folder/of/some/program/module_%d.py" % (index % 7), "exec"), functions)
    return functions["step_%d" % (depth - 2)]


def other(turn):
    """A function of some size that launches."""
    space = {"launch": bursts.launch_once}
    exec(compile("def other_%d():\n%s    launch()\n" % (turn, "    x = 1\n" * (turn % 23)), "other.py", "exec"), space)
    return space["other_%d" % turn]


def in_turns(others):
    lines = {"launch": bursts.launch_once}
    exec(compile("def lines():\n" + "    launch()\n" * 64, "/a/folder/of/some/program/lines.py", "exec"), lines)
    turn_of = chain(lines["lines"])
    turn_of()
    bursts.mean_of_noted()
    kept = []
    for turn in range(TURNS):
        turn_of()
        if others:
            kept.append(other(turn))
            kept[-1]()
            del kept[:-50]
    return bursts.mean_of_noted()


bursts.begin_bursts()
print("%.1f %.1f %.1f %.1f %d" % (*chain(innermost)(), in_turns(False), in_turns(True), bursts.noted_and_left_out()))
