"""`python -m gputrace`: becomes the program gputrace."""

import os
import sys

from gputrace import executable

path = executable()
os.execv(path, [path, *sys.argv[1:]])
