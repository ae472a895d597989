"""past_the_hook.py PROGRAMS LIBRARY BYPASS: a hundred launches by LIBRARY (past_the_hook.c), then 20000 of
which some go past the hook, by hook_bypass of PROGRAMS, then a hundred again. Prints how many samples there
are, how many of them are of launches past the hook, and how many launches went past it.
"""
import ctypes
import sys

sys.path.insert(0, sys.argv[1])
from hook_bypass import HookBypass

library = ctypes.CDLL(sys.argv[2])
library.begin()
library.launches(100)
bypass = HookBypass.of_this_process(sys.argv[3])
bypass.switch(True)
library.launches(20_000)
bypass.switch(False)
library.launches(100)
samples = bypass.samples()
print(len(samples), sum(is_bypassed for _, _, is_bypassed in samples), bypass.library.bypass_count())
