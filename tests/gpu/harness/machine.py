"""What this machine has: driver, compilers, CUPTI libraries, profilers. Looks only; starts nothing on the GPU."""

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
from functools import lru_cache


def output_of(command, limit_s=30):
    """Standard output and error of a short command, or a note of why there is none."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, check=False)
        return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"


def first_existing(patterns):
    for pattern in patterns:
        for path in sorted(glob.glob(pattern), reverse=True):
            if os.path.exists(path):
                return path
    return None


@lru_cache(None)
def nvcc():
    return shutil.which("nvcc") or first_existing(["/usr/local/cuda/bin/nvcc", "/usr/local/cuda*/bin/nvcc", "/opt/cuda*/bin/nvcc"])


@lru_cache(None)
def toolkit():
    """The folder that holds bin/nvcc, include and a library folder."""
    return os.path.dirname(os.path.dirname(os.path.realpath(nvcc()))) if nvcc() else None


@lru_cache(None)
def includes():
    """Folders that together hold cuda.h and, where there is one, cupti.h."""
    root = toolkit() or "/nonexistent"
    packages = glob.glob(os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "lib", "python3*", "site-packages", "nvidia", "cu13", "include"))
    wanted = [f"{root}/include", f"{root}/targets/x86_64-linux/include", f"{root}/extras/CUPTI/include", "/usr/local/cuda/include", *packages]
    return [path for path in wanted if os.path.isdir(path)]


def same_files_once(paths):
    """Real paths, each file once, in order."""
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isfile(path)))


@lru_cache(None)
def find_libraries(name):
    """Every such file on the machine, but for kernel and scratch folders and gputrace's own simulated device."""
    skipped = ["/proc", "/sys", "/dev", "/tmp", "/run"]
    prune = " -o ".join(f"-path {path}" for path in skipped)
    listing = output_of(["sh", "-c", f"find / \\( {prune} \\) -prune -o -name '{name}*' -print 2>/dev/null"], 90)
    return [line for line in listing.splitlines() if re.search(r"\.so(\.[0-9.]+)?$", line) and "gputrace" not in line and "/simulated/" not in line]


@lru_cache(None)
def driver_library():
    for line in output_of(["ldconfig", "-p"]).splitlines():
        if "libcuda.so.1 " in line and "x86-64" in line:
            return line.split("=>")[-1].strip()
    found = find_libraries("libcuda.so.1")
    return found[0] if found else None


@lru_cache(None)
def runtime_library():
    """The toolkit's libcudart.so, else the first one of the newest major version."""
    root = toolkit() or "/nonexistent"
    beside = first_existing([f"{root}/lib64/libcudart.so.1[0-9]", f"{root}/targets/*/lib/libcudart.so.1[0-9]", f"{root}/lib/libcudart.so.1[0-9]"])
    return beside or next(iter(sorted(find_libraries("libcudart.so.1"), reverse=True)), None)


@lru_cache(None)
def toolkit_cupti():
    """A libcupti for programs that bring none of their own."""
    root = toolkit() or "/nonexistent"
    patterns = [f"{root}/extras/CUPTI/lib64/libcupti.so.1[0-9]", f"{root}/lib64/libcupti.so.1[0-9]", f"{root}/targets/*/lib/libcupti.so.1[0-9]"]
    beside = first_existing(patterns)
    if beside:
        return beside
    found = [path for path in find_libraries("libcupti.so") if "nvidia/cu13" in path] or find_libraries("libcupti.so")
    return found[0] if found else None


@lru_cache(None)
def nsys():
    return shutil.which("nsys") or first_existing(["/opt/nvidia/nsight-systems/*/bin/nsys", "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys", "/usr/local/cuda*/bin/nsys"])


@lru_cache(None)
def cupti_archive():
    """The static libcupti of the toolkit, if it came with one."""
    root = toolkit() or "/nonexistent"
    return first_existing([f"{root}/extras/CUPTI/lib64/libcupti_static.a", f"{root}/lib64/libcupti_static.a", f"{root}/targets/*/lib/libcupti_static.a"])


@lru_cache(None)
def tool(name):
    """A profiler or checker of the toolkit, on the PATH or where NVIDIA puts them."""
    usual = [f"/usr/local/cuda*/bin/{name}", f"/opt/nvidia/*/{name}", f"/opt/nvidia/*/*/{name}", f"/opt/nvidia/*/*/bin/{name}", f"/usr/local/cuda*/{name}/{name}"]
    return shutil.which(name) or first_existing(usual)


@lru_cache(None)
def architecture():
    """nvcc's name for the first GPU, such as sm_90."""
    found = re.search(r"(\d+)\.(\d+)", output_of(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]))
    return f"sm_{found[1]}{found[2]}" if found else "sm_90"


def gpu_count():
    return sum(line.startswith("GPU ") for line in output_of(["nvidia-smi", "-L"]).splitlines())


def facts():
    """Lines that describe the machine, for the head of a log."""
    smi = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"])
    release = (re.findall(r"release [^\n]*", output_of([nvcc(), "--version"])) or ["?"])[-1] if nvcc() else "none"
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "?").split()[-1]
    return [
        f"gpu: {smi}",
        f"kernel: {platform.release()}  glibc: {glibc}  python: {platform.python_version()} {sys.executable}",
        f"cpus: {os.cpu_count()}  nvcc: {nvcc()} ({release})",
        f"driver library: {driver_library()}  cudart: {runtime_library()}",
        f"cupti for nvcc programs: {toolkit_cupti()}  nsys: {nsys()}",
    ]
