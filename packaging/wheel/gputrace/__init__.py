"""gputrace traces CUDA programs without changing them.

This package finds the program `gputrace` that is installed with it, and starts it. It needs nothing but Python.
"""

import os
import shutil
import subprocess
import sysconfig

__all__ = ["executable", "lib", "run", "load_ipython_extension"]


def executable():
    """The path of the program `gputrace` that is installed with this package."""
    name = "gputrace"
    schemes = [None, "{}_user".format(os.name)]
    folders = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    # pip install --target and --prefix.
    package = os.path.dirname(os.path.abspath(__file__))
    folders.append(os.path.join(os.path.dirname(package), "bin"))
    folders.append(os.path.join(os.path.abspath(os.path.join(package, *[os.pardir] * 4)), "bin"))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError("no program gputrace in {}: pip install --force-reinstall gputrace".format(", ".join(folders)))
    return found


def lib():
    """The path of the preload library: the value of LD_PRELOAD under which programs are traced."""
    asked = subprocess.run([executable(), "lib"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if asked.returncode != 0:
        raise RuntimeError(asked.stderr.strip())
    return asked.stdout.rstrip("\n")


def run(command, options=(), **keywords):
    """Runs a command to its end, traced: `gputrace run OPTIONS -- COMMAND`.

    `command` is a list of words, `options` are those of `gputrace run`, such as ["-o", "folder"]. The keywords and the
    result are those of subprocess.run; the exit code is the command's own.
    """
    if isinstance(command, (str, bytes)):
        raise TypeError("the command is a list of words; for a shell's line: ['sh', '-c', line]")
    return subprocess.run([executable(), "run", *options, "--", *command], **keywords)


def load_ipython_extension(ipython):
    """What `%load_ext gputrace` calls: adds the cell magic `%%gputrace`."""
    from gputrace import notebook

    notebook.register(ipython)
