"""Our occupancy against cuOccupancyMaxActiveBlocksPerMultiprocessor.

First for kernels of many register counts, block and shared-memory sizes, whose program asks the driver itself, for the best
block size (cuOccupancyMaxPotentialBlockSize) too; then for every configuration of the PyTorch run, where a CUPTI callback client (occupancy_shim.c) asks, in a separate run."""

import json
import re
from collections import defaultdict

from .. import machine, process, reports
from ..build import make_all

TOLERANCE = 0.0051  # Half a percent covers a value printed in whole percents.


def references(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def three(value):
    """A grid or block as three numbers, however it is written."""
    numbers = [int(n) for n in (value if isinstance(value, list) else value.values() if isinstance(value, dict) else re.findall(r"\d+", str(value)))]
    return tuple((numbers + [1, 1, 1])[:3])


def driver_occupancy(entry):
    threads = entry["block"][0] * entry["block"][1] * entry["block"][2]
    return entry["blocks"] * -(-threads // 32) * 32 / entry["threads_per_multiprocessor"]


def compare(bench, name, entries, report):
    """Every configuration of the report against the driver's answers; adds one row."""
    wanted = defaultdict(list)
    for entry in entries:
        if entry["status"] == 0 and entry["blocks"] >= 0:
            kernel = reports.spelling(bench.demangle(entry["name"]))
            wanted[kernel, tuple(entry["block"]), entry["dynamic"] + max(0, entry["static"])].append(entry)
    configs = [(kernel, config) for kernel in report.get("kernels") or [] for config in kernel.get("configs") or []]
    values = [config.get("occupancy") or 0 for _, config in configs]
    unit = 100 if values and max(values) > 1.0001 else 1
    equal, wrong, unknown, absent = 0, [], [], 0
    for kernel, config in configs:
        spelled = reports.spelling(bench.demangle(kernel.get("full_name") or kernel["name"]))
        block, shared = three(config["block"]), int(config.get("shared_bytes") or 0)
        found = wanted.get((spelled, block, shared))
        label = f"{kernel['name'][:60]} block={block} shared={shared} registers={config.get('registers')}"
        if not found:
            unknown.append(label)
            continue
        if config.get("occupancy") is None:
            absent += 1
            continue
        answers = [driver_occupancy(entry) for entry in found]
        if any(abs(config["occupancy"] / unit - answer) <= TOLERANCE for answer in answers):
            equal += 1
        else:
            wrong.append(f"ours {config['occupancy'] / unit:.4f} driver {answers[0]:.4f} {label} (driver saw {found[0]['registers']} registers, static {found[0]['static']})")
    bench.keep(f"{name}-occupancy.txt", "\n".join([*wrong, "", "no driver answer:", *unknown]))
    good = equal and not wrong and not unknown and not absent
    bench.check(name, good, f"{equal} of {len(configs)} configurations equal, {len(wrong)} differ, {absent} without a value, {len(unknown)} without a driver's answer, {len(entries)} asked {wrong[:2]} {unknown[:2]}")


def compare_best(bench, entries, report):
    """The best block size of every configuration against the driver's; adds one row."""
    wanted = {(entry["name"], tuple(entry["block"]), entry["dynamic"]): entry for entry in entries}
    equal, wrong, absent, answers = 0, [], 0, set()
    for kernel in report.get("kernels") or []:
        for config in kernel.get("configs") or []:
            entry = wanted.pop((kernel.get("full_name") or kernel["name"], three(config["block"]), config["dynamic_shared_bytes"]), None)
            if entry is None:
                absent += 1
            elif config.get("best_block_threads") == entry["best"]:
                equal += 1
                answers.add(entry["best"])
            else:
                wrong.append(f"ours {config.get('best_block_threads')} driver {entry['best']} {entry['name']} block={entry['block'][0]} dynamic={entry['dynamic']} registers={entry['registers']}")
    bench.keep("best-block.txt", "\n".join([*wrong, "", "not in the report:", *map(str, wanted)]))
    good = equal and not wrong and not absent and not wanted and len(answers) > 1
    bench.check("best-block", good, f"{equal} configurations equal, of {len(answers)} block sizes from {min(answers, default=0)} to {max(answers, default=0)}; {len(wrong)} differ, {absent} without a driver's answer, {len(wanted)} not in the report {wrong[:2]}")


def synthetic(bench):
    if not bench.programs.get("occupancy_launch"):
        bench.row("registers", "FAIL", "occupancy_launch was not built")
        return
    limits = [*range(24, 256, 8), 255]
    cubins = make_all(bench.builder, {f"occ_{n}": (lambda b, n=n: b.cuda(f"occ_{n}", "occupancy_kernel.cu", "-cubin", f"-maxrregcount={n}", f"-DKERNEL=occ_{n}", suffix=".cubin")) for n in limits})
    folder = bench.scratch / "cubins"
    folder.mkdir(exist_ok=True)
    names = [name for name, path in cubins.items() if path]
    for name in names:
        (folder / f"{name}.cubin").write_bytes(cubins[name].read_bytes())
    if len(names) < len(limits):
        bench.row("registers-build", "INFO", f"{len(names)} of {len(limits)} built")
    command = [bench.programs["occupancy_launch"], folder, *names]
    outcome, traces = bench.traced("registers", command)
    report = bench.report("registers", traces)
    if outcome.code != 0 or not report:
        bench.row("registers", "FAIL", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        return
    entries = references(outcome.stdout)
    compare(bench, "registers", entries, report)
    compare_best(bench, entries, report)


def pytorch(bench):
    command = bench.script("torch_train.py", "--steps", "3")
    shim = bench.programs.get("occupancy_shim")
    path = bench.log("shim.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    asked = process.run(command, bench.log("shim"), bench.limit(120), {"CUDA_INJECTION64_PATH": shim, "OCCUPANCY_OUT": path, "CUPTI_CLIENT_LIB": machine.toolkit_cupti()})
    entries = references(path.read_text()) if path.exists() else []
    if asked.code != 0 or not entries:
        bench.row("pytorch", "FAIL", f"the reference run: {asked.ending()}, {len(entries)} answers {asked.stderr[-300:]!r}")
        return
    outcome, traces = bench.traced("pytorch", command)
    report = bench.report("pytorch", traces)
    if outcome.code != 0 or not report:
        bench.row("pytorch", "FAIL", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        return
    compare(bench, "pytorch", entries, report)


def run(bench):
    bench.parallel({"registers": lambda: synthetic(bench), "pytorch": lambda: pytorch(bench)})
