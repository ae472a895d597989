"""What a program does for the first time: prints how many nanoseconds a load of a fat binary took, a look-up
of a new kernel, and a launch from a stack of DEPTH functions that have not launched before (means of 400, 400
and 300).

    first.py LIBRARY DEPTH
"""

import ctypes
import statistics
import sys
import time

first = ctypes.PyDLL(sys.argv[1])
for function in (first.load_ns, first.look_up_ns, first.last_launch_ns):
    function.restype = ctypes.c_double
depth = int(sys.argv[2])


def new_functions(number):
    """The outermost of a chain of DEPTH functions, of which the innermost one launches."""
    functions = {"launch": first.launch_first}
    source = "".join(f"def f{number}_{at}():\n    {f'f{number}_{at - 1}' if at else 'launch'}()\n" for at in range(depth))
    exec(compile(source, f"/a/folder/of/some/program/module_{number}.py", "exec"), functions)
    return functions[f"f{number}_{depth - 1}"]


first.begin_first()
# The session has begun by then.
time.sleep(0.4)
load, look_up = first.load_ns(400), first.look_up_ns(400)
launches = []
for function in [new_functions(number) for number in range(300)]:
    function()
    launches.append(first.last_launch_ns())
print(f"{load:.0f} {look_up:.0f} {statistics.mean(launches):.0f}")
