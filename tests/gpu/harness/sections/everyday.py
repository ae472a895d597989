"""Ordinary programs of every framework: the same output, the same exit code, the same counts, and no failure that is none.

Each program runs four times: untraced, counted by the bare client, under `gputrace run`, and with LD_PRELOAD alone. A
program that differs without us (two runs under the client differ) is skipped with its figures. Programs run side by side.
everyday.json in the output folder has the figures, the failures and the answers of each program.
"""

import json
import os
import threading
from dataclasses import dataclass, field

from .. import machine, reports

# What a program exits with where the machine lacks what it needs.
CANNOT = 77
DIRECTIONS_WITHOUT_RECORDS = ("cpu_to_cpu",)
# Rows of a program's failures; the log has all.
ROWS_MOST = 12


@dataclass
class Program:
    name: str
    command: list
    env: dict = field(default_factory=dict)
    # What the client counts where it cannot count the program itself: a part that does the same work.
    client_command: list | None = None
    # What LD_PRELOAD names before our library.
    first: str | None = None
    gpus: int = 1


def programs(bench):
    """Those that take longest come first, so that the section ends when they do."""
    built = bench.programs

    def script(name, *options):
        return bench.script(f"everyday/{name}", *options)

    caches = bench.scratch / "everyday-caches"
    compiled = {"TORCHINDUCTOR_CACHE_DIR": caches / "inductor", "TRITON_CACHE_DIR": caches / "triton"}
    asan = {"ASAN_OPTIONS": "protect_shadow_gap=0:detect_leaks=0"}
    fatbin = built.get("driver_kernels")
    # One folder each, since two programs that fill one cache at the same moment may do different work.
    own = {mode: {name: path / mode for name, path in compiled.items()} for mode in ("default", "graphs", "triton", "lightning")}
    return [
        Program("compile-default", script("torch_compile.py", "default"), own["default"]),
        Program("compile-graphs", script("torch_compile.py", "graphs"), own["graphs"]),
        Program("lightning-8-workers", script("lightning_workers.py"), own["lightning"]),
        Program("transformers-llama", script("transformers_llama.py")),
        Program("ddp-nccl-2", script("ddp_train.py", "nccl", "2"), gpus=2),
        Program("ddp-gloo-2", script("ddp_train.py", "gloo", "2")),
        Program("ddp-nccl-1", script("ddp_train.py", "nccl", "1")),
        Program("flax", script("flax_train.py")),
        Program("botorch", script("botorch_step.py")),
        Program("torch-geometric", script("geometric_gcn.py")),
        Program("torch-ipc", script("torch_ipc.py")),
        Program("torch-profiler", script("torch_profiled.py"), client_command=script("torch_profiled.py", "plain")),
        Program("triton", script("triton_products.py"), own["triton"]),
        Program("allocator-expandable", script("torch_allocators.py", "expandable")),
        Program("allocator-async", script("torch_allocators.py", "async")),
        Program("allocator-pluggable", script("torch_allocators.py", "pluggable", built.get("pluggable_allocator"))),
        Program("threads-torch-8", script("threads_first_use.py", "torch", "8")),
        *[Program(f"cupy-{kind}", script("cupy_allocators.py", kind)) for kind in ("pool", "async", "none")],
        *[Program(f"threads-{number}", script("threads_first_use.py", fatbin, number)) for number in (4, 8, 16, 64)],
        Program("cuda-ipc", [built.get("cuda_ipc")]),
        Program("launch-kinds", [built.get("launch_kinds")]),
        Program("sanitized", [built.get("sanitized")], asan, first=shared_asan()),
        Program("sanitized-static", [built.get("sanitized_static")], asan),
    ]


def shared_asan():
    """gcc's shared ASan, which wants to come before any other preload."""
    path = machine.output_of(["gcc", "-print-file-name=libasan.so"]).strip()
    return os.path.realpath(path) if os.path.isabs(path) and os.path.exists(path) else None


def same(outcome, bare):
    """What differs of a run's output and exit code."""
    wrong = [] if outcome.code == bare.code else [f"{outcome.ending()}, untraced {bare.ending()}: {outcome.stderr.strip()[-300:]!r}"]
    if outcome.stdout != bare.stdout:
        wrong.append(f"stdout {outcome.stdout[-200:]!r} for {bare.stdout[-200:]!r}")
    return wrong


def without_records(report):
    """Copies of which CUPTI has no record, as between two places of the host."""
    found = [entry for entry in report.get("transfers") or [] if entry["direction"] in DIRECTIONS_WITHOUT_RECORDS]
    return sum(entry["calls"] - entry["timed_calls"] for entry in found)


class Counts:
    """What a report counted, and what of it differs from the truth."""

    def __init__(self, bench, name, report, want, client):
        self.got, self.wrong = reports.counts(report), []
        self.host_copies = without_records(report) if client and "cpu_to_cpu" not in client["copies"] else 0
        self.got["copies"] -= self.host_copies
        self.keys = [key for key in want if self.got.get(key) != want[key]]
        as_client = reports.client_counts(client) if client else {}
        # What the client counts as we do, against the hand count, is the driver's doing.
        self.keys = [key for key in self.keys if not (key in reports.DEVICE_KEYS and key in as_client and self.got.get(key) == as_client[key])]
        self.wrong += [f"{key} {self.got.get(key)} for {want[key]}" for key in self.keys]
        if client:
            self.by_client(bench, name, report, client)
        self.missing = max(0, (report.get("untimed_operations") or 0) - self.host_copies)
        for what, number in (("missing times", self.missing), ("dropped", self.got["dropped"]), ("device_only", self.got["device_only"]), ("invalid times", report.get("invalid_timing"))):
            if number:
                self.wrong.append(f"{what} {number}")
        if not report.get("complete"):
            self.wrong.append("complete is false")

    def by_client(self, bench, name, report, client):
        want = {direction: [calls, size] for direction, (calls, size, _) in client["copies"].items()}
        got = {direction: entry for direction, entry in reports.transfers(report).items() if direction in want or direction not in DIRECTIONS_WITHOUT_RECORDS}
        if want != got:
            self.keys.append("transfers")
            self.wrong.append(f"transfers {got} for {want}")
        names = {}
        for kernel, (calls, _) in client["names"].items():
            names[bench.demangle(kernel)] = names.get(bench.demangle(kernel), 0) + calls
        level, lines = reports.compare_names(names, reports.kernel_calls(report, bench.demangle))
        if level is None:
            bench.keep(f"{name}-names.txt", "\n".join(lines))
            self.keys.append("names")
            self.wrong.append(f"names {lines[:2]}")


def failures(report):
    """All that a report calls a failure: refused calls, and those that lost a context."""
    return ((report.get("errors") or {}).get("list") or []) + (report.get("failures") or [])


def answers(report):
    return (report.get("errors") or {}).get("answers") or []


def frames(failure, most=8):
    """A failed call's stack, innermost first; of a native frame the file is the library."""
    found = [f"{frame.get('function')} ({os.path.basename(frame.get('path') or frame.get('file') or '?')}:{frame.get('line') or '?'})" for frame in failure.get("stack") or []]
    return " < ".join(found[:most]) or "no stack"


def kinds(report):
    """Which calls failed how, and how often: two runs that agree in it need not be told twice."""
    found = {}
    for failure in failures(report):
        key = f"{failure['call']} {failure['error']} {json.dumps(failure.get('arguments'), sort_keys=True)}"
        found[key] = found.get(key, 0) + failure.get("calls", 1)
    return found


def tell_failures(bench, program, way, report, native):
    """A row a failure, with all that is needed to say whether it is one."""
    deeper = {(failure["call"], failure["code"], str(failure.get("arguments"))): failure for failure in (failures(native) if native else [])}
    all_of_them = failures(report)
    if len(all_of_them) > ROWS_MOST:
        bench.row(f"{program.name}-{way}-failures", "INFO", f"{len(all_of_them)} failures, {ROWS_MOST} shown; all are in {program.name}-errors.json")
    for failure in all_of_them[:ROWS_MOST]:
        line = failure.get("line") or {}
        where = f"{line.get('file')}:{line.get('line')} in {line.get('function')}" if line else "no line"
        shown = deeper.get((failure["call"], failure["code"], str(failure.get("arguments"))), failure)
        bench.row(f"{program.name}-{way}-failure", "FAIL", f"{failure['call']} {failure['error']} ({failure['code']}) x{failure.get('calls', 1)} pid {failure['pid']} thread {failure.get('thread_name')!r} at {where}; asked {json.dumps(failure.get('arguments'))}; {frames(shown)}")


def with_native_stacks(bench, program, bare):
    """The same once more, so that a failed call says which library made it."""
    _, folder = bench.traced(f"{program.name}-native", program.command, "--stacks", "python,native,nvtx", env=program.env, limit_s=60 + 8 * bare.seconds)
    report = bench.report(f"{program.name}-native", folder)
    if report:
        bench.keep(f"{program.name}-native-errors.json", json.dumps({"errors": report.get("errors"), "failures": report.get("failures")}, indent=1))
    return report


def counted_again(bench, program, client):
    """What two runs under the client differ in: that is the program's doing."""
    _, again = bench.counted(f"{program.name}-again", program.client_command or program.command, names=True, env=program.env)
    if not again:
        return []
    first, second = reports.client_counts(client), reports.client_counts(again)
    varies = [key for key in first if first[key] != second[key]]
    calls = [{name: entry[0] for name, entry in side["names"].items()} for side in (client, again)]
    copies = [{name: entry[:2] for name, entry in side["copies"].items()} for side in (client, again)]
    return varies + (["names"] if calls[0] != calls[1] else []) + (["transfers"] if copies[0] != copies[1] else [])


def lacks(bench, program):
    """Why a program is not run here, with the verdict that it gets."""
    if machine.gpu_count() < program.gpus:
        return "SKIP", f"{machine.gpu_count()} GPU here, {program.gpus} needed"
    if None in program.command:
        why = next((text for name, text in {**bench.builder.failures, **bench.builder.optional_failures}.items() if text and name in ("launch_kinds", "cuda_ipc", "driver_kernels", "pluggable_allocator", program.name.replace("-", "_"))), "?")
        return "SKIP" if program.name.startswith("sanitized") else "FAIL", f"was not built: {why[-300:]}"
    if bench.time_left() < 40:
        return "SKIP", "not run: no time left"
    return None


def one(bench, program, table):
    """The four runs of one program and its row."""
    name, env = program.name, program.env
    reason = lacks(bench, program)
    if reason:
        bench.row(name, *reason)
        return
    bare = bench.bare(name, program.command, 170, env)
    if bare.code != 0:
        cannot = bare.code == CANNOT or "ModuleNotFoundError" in bare.stderr
        bench.row(name, "SKIP" if cannot else "FAIL", f"does not run here untraced: {bare.ending()} {bare.stderr.strip()[-400:]!r}")
        return
    wrong, limit_s = [], 60 + 8 * bare.seconds
    client_run, client = bench.counted(name, program.client_command or program.command, names=True, limit_s=limit_s, env=env)
    if client_run and not program.client_command:
        wrong += [f"client: {text}" for text in same(client_run, bare)]
    ways = {"run": bench.traced(name, program.command, limit_s=limit_s, env=env)}
    preload = f"{program.first}:{bench.library()}" if program.first else bench.library()
    ways["bare"] = bench.preloaded(f"{name}-preload", program.command, limit_s=limit_s, env={**env, "LD_PRELOAD": preload})

    hand = reports.expected(bare.stdout)
    want = hand or (reports.client_counts(client) if client else None)
    found, keys, all_reports = {}, [], {}
    for way, (outcome, folder) in ways.items():
        wrong += [f"{way}: {text}" for text in same(outcome, bare)]
        report = bench.report(f"{name}-{way}", folder) if not outcome.hung else None
        if not report:
            wrong.append(f"{way}: no report")
            continue
        all_reports[way] = report
        if want:
            found[way] = Counts(bench, f"{name}-{way}", report, want, client)
            wrong += [f"{way}: {text}" for text in found[way].wrong]
            keys += found[way].keys
        said = [notice["text"] for notice in report.get("notices") or [] if notice.get("severity") == "warning"]
        if said:
            bench.row(f"{name}-{way}-warnings", "INFO", said)
    if not want:
        wrong.append(f"neither a hand count nor a client's: {client_run.ending() + ' ' + client_run.stderr.strip()[-200:] if client_run else 'the client was not built'}")

    elif not want["kernel_calls"]:
        wrong.append("it launched nothing")

    failed = {way: failures(report) for way, report in all_reports.items()}
    kept = {way: {"errors": report.get("errors"), "failures": report.get("failures")} for way, report in all_reports.items()}
    bench.keep(f"{name}-errors.json", json.dumps(kept, indent=1))
    if any(failed.values()):
        native = with_native_stacks(bench, program, bare)
        told = None
        for way, report in all_reports.items():
            if kinds(report) != told:
                tell_failures(bench, program, way, report, native)
            told = kinds(report)
    number = {way: sum(failure.get("calls", 1) for failure in each) for way, each in failed.items()}
    wrong += [f"{way}: {calls} failed calls" for way, calls in number.items() if calls]

    verdict = "FAIL" if wrong else "PASS"
    if keys and client:
        varies = counted_again(bench, program, client)
        about_counts = [text for text in wrong if any(f": {key} " in text for key in keys)]
        if set(keys) <= set(varies) and len(about_counts) == len(wrong):
            verdict = "SKIP"
            wrong.insert(0, f"two runs under the client differ too, in {varies}")
    counts_of = {"client": reports.client_counts(client) if client else {}, **{way: each.got for way, each in found.items()}}
    shown = [f"{key} {'/'.join(str(counts_of.get(side, {}).get(key, '-')) for side in ('client', 'run', 'bare'))}" for key in ("launches", "graph_launches", "kernel_calls", "copies", "memsets")]
    missing = "/".join(str(found[way].missing) if way in found else "-" for way in ("run", "bare"))
    host_copies = max((each.host_copies for each in found.values()), default=0)
    seconds = "/".join(f"{outcome.seconds:.0f}" for outcome in (bare, *(outcome for outcome, _ in ways.values())))
    bench.row(name, verdict, f"{'; '.join(wrong) + ' | ' if wrong else ''}{' '.join(shown)} missing {missing} failures {'/'.join(str(number.get(way, '-')) for way in ('run', 'bare'))}"
              + (f" host-to-host {host_copies}" if host_copies else "") + f" [{seconds} s untraced/run/bare]")
    table[name] = {"verdict": verdict, "wrong": wrong, "hand": hand, "counts": counts_of, "missing": missing, "failures": failed, "answers": {way: answers(report) for way, report in all_reports.items()},
                   "host_to_host": host_copies, "seconds": seconds, "stdout": bare.stdout[-500:]}


def tell_answers(bench, table):
    """Which calls were answered with an error by design, and in which programs."""
    found = {}
    for name, entry in table.items():
        for answer in entry["answers"].get("run") or []:
            per = found.setdefault((answer["call"], answer["error"]), {})
            per[name] = per.get(name, 0) + answer["calls"]
    for (call, error), per in sorted(found.items()):
        bench.row("answers", "INFO", f"{call} {error}: {' '.join(f'{name}={calls}' for name, calls in sorted(per.items()))}")


def run(bench):
    table, lock = {}, threading.Lock()
    wanted = programs(bench)
    if bench.only:
        wanted = [program for program in wanted if program.name in bench.only]
        unknown = set(bench.only) - {program.name for program in wanted}
        if unknown:
            bench.row("only", "FAIL", f"no such program: {' '.join(sorted(unknown))}")
    elif bench.quick:
        wanted = [program for program in wanted if program.name in ("transformers-llama", "flax", "torch-ipc", "launch-kinds", "threads-16", "sanitized")]

    def guarded(program):
        mine = {}
        try:
            one(bench, program, mine)
        finally:
            with lock:
                table.update(mine)
                (bench.out / "everyday.json").write_text(json.dumps(table, indent=1))

    bench.parallel({program.name: (lambda program=program: guarded(program)) for program in wanted}, workers=max(4, (os.cpu_count() or 4) * 3 // 8))
    tell_answers(bench, table)
