"""Compiles the test programs, each once: outputs are named by a hash of their sources and flags and are kept."""

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import machine

GPU_TESTS = Path(__file__).resolve().parent.parent
PROGRAMS = GPU_TESTS / "programs"


class Builder:
    """Compiles into `folder`; failures are kept by name in `failures` instead of raised."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.links = self.folder / "links"
        self.links.mkdir(exist_ok=True)
        self.failures, self.optional_failures = {}, {}
        for name, target in (("libcuda.so", machine.driver_library()), ("libcudart.so", machine.runtime_library())):
            link = self.links / name
            if link.is_symlink() or link.exists():
                link.unlink()
            if target:
                link.symlink_to(os.path.realpath(target))

    def compile(self, name, command, sources, suffix=""):
        """Runs `command` plus `-o OUTPUT` unless that output exists; the output's path, or None if it failed."""
        digest = hashlib.sha256(repr(command).encode())
        for source in [*sources, *GPU_TESTS.glob("*.h"), *PROGRAMS.glob("*.h")]:
            digest.update(Path(source).read_bytes())
        output = self.folder / f"{name}-{digest.hexdigest()[:10]}{suffix}"
        if output.exists():
            return output
        part = output.with_name(output.name + ".part" + suffix)
        try:
            done = subprocess.run([*map(str, command), "-o", str(part)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
            text, code = done.stdout.decode(errors="replace"), done.returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            text, code = str(error), 1
        if code or not part.exists():
            self.failures[name] = f"{' '.join(map(str, command))}\n{text}"
            return None
        part.rename(output)
        return output

    def cuda(self, name, source, *flags, suffix=""):
        path = PROGRAMS / source
        command = [machine.nvcc() or "nvcc", "-O2", f"-arch={machine.architecture()}", *flags, path]
        return self.compile(name, command, [path], suffix)

    def c(self, name, source, *flags, suffix=""):
        path = Path(source)
        command = ["gcc", "-O2", *flags, path, "-ldl", "-lpthread"]
        return self.compile(name, command, [path], suffix)

    def driver_program(self, name, source, *flags):
        """A C program that uses cuda.h and links to the driver itself."""
        include = [f"-I{path}" for path in machine.includes()]
        path = PROGRAMS / source
        command = ["gcc", "-O2", *include, *flags, path, f"-L{self.links}", "-lcuda", "-ldl", f"-Wl,-rpath,{os.path.dirname(machine.driver_library() or '/')}", "-Wl,--allow-shlib-undefined"]
        return self.compile(name, command, [path])

    def dynamic_program(self, name, source, *flags):
        """A C program that uses cuda.h but finds the driver at run time."""
        return self.c(name, PROGRAMS / source, *[f"-I{path}" for path in machine.includes()], *flags)

    def shared_library(self, name, source):
        return self.c(name, GPU_TESTS / source, "-shared", "-fPIC", suffix=".so")

    def cupti_program(self, name):
        """cupti_user.c bound to the shared libcupti by the linker."""
        library = machine.toolkit_cupti()
        if not library:
            return None
        path = PROGRAMS / "cupti_user.c"
        command = ["gcc", "-O2", "-DLINKED", path, library, f"-Wl,-rpath,{os.path.dirname(library)}", "-ldl", "-lpthread", "-Wl,--allow-shlib-undefined"]
        return self.compile(name, command, [path])

    def cupti_library(self, name):
        """cupti_user.c as a library with the archive inside, which shows none of its symbols."""
        archive = machine.cupti_archive()
        if not archive:
            return None
        path = PROGRAMS / "cupti_user.c"
        command = ["gcc", "-O2", "-shared", "-fPIC", "-DLINKED", "-DLIBRARY", path, archive, f"-L{self.links}", "-lcuda", "-lstdc++", "-lrt", "-lm", "-ldl", "-lpthread", "-Wl,--exclude-libs,ALL"]
        return self.compile(name, command, [path], ".so")

    def shared_runtime_flags(self):
        """nvcc flags for a program that loads libcudart.so when it starts."""
        folder = os.path.dirname(os.path.realpath(machine.runtime_library() or "/"))
        return ["-cudart", "shared", f"-L{self.links}", "-Xlinker", f"-rpath={folder}"]


def make_all(builder, wanted):
    """Compiles in parallel: `wanted` maps a name to a function of the builder. The result maps names to paths or None."""
    if not shutil.which("gcc"):
        builder.failures["gcc"] = "gcc is not on the PATH"
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        jobs = {name: pool.submit(make, builder) for name, make in wanted.items()}
        return {name: job.result() for name, job in jobs.items()}


STATIC = ["-cudart", "static"]
ASAN = ["-Xcompiler", "-fsanitize=address"]
# Every program and library that the sections use, by name.
PARTS = {
    "vadd": lambda b: b.cuda("vadd", "vadd.cu", *STATIC),
    "vadd_shared": lambda b: b.cuda("vadd_shared", "vadd.cu", *b.shared_runtime_flags()),
    "vadd_ptds": lambda b: b.cuda("vadd_ptds", "vadd.cu", *STATIC, "--default-stream", "per-thread"),
    "threads": lambda b: b.cuda("threads", "threads.cu", *STATIC),
    "threads_ptds": lambda b: b.cuda("threads_ptds", "threads.cu", *b.shared_runtime_flags(), "--default-stream", "per-thread"),
    "streams": lambda b: b.cuda("streams", "streams.cu", *STATIC),
    "control_ranges": lambda b: b.cuda("control_ranges", "control_ranges.cu", *STATIC),
    "control_threads": lambda b: b.cuda("control_threads", "control_threads.cu", *STATIC),
    "deep_queue": lambda b: b.cuda("deep_queue", "deep_queue.cu", *STATIC),
    "graph_capture": lambda b: b.cuda("graph_capture", "graph_capture.cu", *STATIC),
    "graph_nodes": lambda b: b.cuda("graph_nodes", "graph_nodes.cu", *b.shared_runtime_flags()),
    "graph_soak": lambda b: b.cuda("graph_soak", "graph_soak.cu", *STATIC),
    "launch_kinds": lambda b: b.cuda("launch_kinds", "everyday/launch_kinds.cu", *STATIC),
    "cuda_ipc": lambda b: b.cuda("cuda_ipc", "everyday/cuda_ipc.cu", *STATIC),
    "pluggable_allocator": lambda b: b.cuda("pluggable_allocator", "everyday/pluggable_allocator.cu", *STATIC, "-shared", "-Xcompiler", "-fPIC", suffix=".so"),
    "two_gpus": lambda b: b.cuda("two_gpus", "two_gpus.cu", *STATIC),
    "monitor_busy": lambda b: b.cuda("monitor_busy", "monitor_busy.cu", *STATIC),
    "empty_kernels": lambda b: b.cuda("empty_kernels", "empty_kernels.cu", *STATIC),
    "in_process_empty": lambda b: b.cuda("in_process_empty", "in_process_empty.cu", *STATIC),
    "driver_kernels": lambda b: b.cuda("driver_kernels", "driver_kernels.cu", "-fatbin", suffix=".fatbin"),
    "driver_link": lambda b: b.driver_program("driver_link", "driver_api.c", "-DRESOLVE_LINK"),
    "driver_dlsym": lambda b: b.dynamic_program("driver_dlsym", "driver_api.c", "-DRESOLVE_DLSYM"),
    "driver_getproc": lambda b: b.dynamic_program("driver_getproc", "driver_api.c", "-DRESOLVE_GETPROC"),
    "driver_ptsz": lambda b: b.dynamic_program("driver_ptsz", "driver_api.c", "-DRESOLVE_DLSYM", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"),
    "occupancy_launch": lambda b: b.driver_program("occupancy_launch", "occupancy_launch.c"),
    "cupti_client": lambda b: b.shared_library("cupti_client", "cupti_client.c"),
    "cupti_user": lambda b: b.c("cupti_user", PROGRAMS / "cupti_user.c"),
    "cupti_user_linked": lambda b: b.cupti_program("cupti_user_linked"),
    "cupti_library_host": lambda b: b.c("cupti_library_host", PROGRAMS / "cupti_library_host.c"),
    "hook_bypass": lambda b: b.shared_library("hook_bypass", "hook_bypass.c"),
    "injection": lambda b: b.c("injection", PROGRAMS / "injection.c", "-shared", "-fPIC", suffix=".so"),
    "occupancy_shim": lambda b: b.shared_library("occupancy_shim", "occupancy_shim.c"),
    "crash_trace": lambda b: b.shared_library("crash_trace", "crash_trace.c"),
}


# Whether these can be built is the machine's affair: their absence is a SKIP where they are used, no failure.
OPTIONAL = {
    "cupti_user_library": lambda b: b.cupti_library("cupti_user_library"),
    "sanitized": lambda b: b.cuda("sanitized", "everyday/sanitized.cu", *STATIC, *ASAN),
    "sanitized_static": lambda b: b.cuda("sanitized_static", "everyday/sanitized.cu", *STATIC, *ASAN, "-Xcompiler", "-static-libasan"),
}


def standard(builder):
    made = make_all(builder, {**PARTS, **OPTIONAL})
    for name in OPTIONAL:
        builder.optional_failures[name] = builder.failures.pop(name, None)
    return made
