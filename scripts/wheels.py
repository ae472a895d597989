"""NVIDIA's headers, out of the wheels on PyPI: shared by driver-abi, cupti-layouts and gen-bindings.

The headers are never kept in the repository. What the scripts derive from them there are names, numbers and signatures.
"""

import os
import subprocess
import sys
import zipfile

PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]


def fetch(wheel, cache):
    """The path of a wheel, "project==version", downloaded unless the cache folder has it."""
    project, version = wheel.split("==")
    pattern = f"{project.replace('-', '_')}-{version}-*.whl"
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob(pattern)):
        platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary", ":all:", *platforms, "--dest", str(cache), wheel],
            check=True,
        )
    return next(iter(cache.glob(pattern)))


def unpack(wheel, cache, folder, suffix):
    """Unpacks a wheel's files with that suffix below the folder; returns where."""
    target = folder / wheel.replace("==", "-")
    with zipfile.ZipFile(fetch(wheel, cache)) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.endswith(suffix)])
    return target


def headers(wheel, cache, folder):
    """Unpacks a wheel's headers below the folder; returns the include folder among them."""
    target = unpack(wheel, cache, folder, ".h")
    return next(path for path in sorted(target.rglob("include")) if any(path.rglob("*.h")))


def compiler(*arguments):
    """Runs the C compiler and returns what it prints."""
    command = [os.environ.get("CC", "gcc"), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
