"""PyTorch's blocks (`--memory blocks`) against PyTorch's own statistics, snapshot, history and profiler; and what recording them costs a training step."""

import json
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .. import build, inprocess, paired

BLOCKS = ("--memory", "blocks")
ON, RECORDED = "memory on", "memory blocks"
COST_MOST, COST_HIGH_MOST = 1.02, 1.025
# On an H100 876 switches of 6 processes gave ±1.3 %; ±0.8 % takes 2,300. Shorter blocks have more switches: neighbours that are nearer in time differ by less.
COST_SECONDS, COST_PROCESSES, COST_SWITCHES, COST_BLOCK = 105, 6, 2000, (4, 50)


def prepared(bench, name, mode, env=None):
    """What the program says of itself, the report's memory of its process, and the folder; None where one of them is missing."""
    outcome, folder = bench.traced(name, bench.script("memory_blocks.py", mode), *BLOCKS, env=env)
    report = bench.report(name, folder)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return None
    said = json.loads(outcome.stdout.strip().splitlines()[-1])
    processes = [process for process in report["memory"]["processes"] if process.get("blocks")]
    bench.keep(f"{name}-memory.json", json.dumps(report["memory"], indent=1))
    if not bench.check(f"{name}-process", len(processes) == 1 and not report["dropped"], f"{len(processes)} processes with blocks, dropped {report['dropped']}"):
        return None
    return said, processes[0]["blocks"], report["memory"], folder


def compare(bench, name, said, blocks):
    """The figures that both have, to the byte."""
    device = blocks["devices"][0]
    pairs = {"allocated": (blocks["end_bytes"], said["allocated"]), "peak": (blocks["peak_bytes"], said["peak"]), "reserved": (device["reserved_bytes"], said["reserved"]),
             "reserved-peak": (device["reserved_peak_bytes"], said["reserved_peak"]), "own-count": (device["allocated_bytes"], said["allocated"]),
             "allocations": (blocks["allocations"], said["allocations"]), "frees": (blocks["frees"], said["frees"])}
    for figure, (ours, theirs) in pairs.items():
        bench.check(f"{name}-{figure}", ours == theirs, f"{ours} of {theirs}")
    rest = [blocks[figure] for figure in ("unknown_frees", "ended_unfreed", "not_followed")] + [device["differences"], device["before_bytes"]]
    bench.check(f"{name}-nothing-missing", not any(rest), f"unknown frees, ended unfreed, not followed, differences, before: {rest}")


def train(bench, name, env):
    found = prepared(bench, name, "train", env)
    if not found:
        return
    said, blocks, memory, folder = found
    compare(bench, name, said, blocks)
    # What the engine's thread allocates has no Python line in PyTorch's history; here it has the lines of the forward pass.
    known = {line: size for line, size in said["by_line"].items() if line != "None"}
    without = said["by_line"].get("None", 0)
    ours = {}
    for line in memory["block_lines"]:
        if line["line"] and line["end_bytes"]:
            number = str(line["line"]["line"])
            ours[number] = ours.get(number, 0) + line["end_bytes"]
    bench.check(f"{name}-lines", known and all(ours.get(line, 0) >= size for line, size in known.items()) and sum(ours.values()) == sum(known.values()) + without, f"ours {ours}, PyTorch's {said['by_line']}")
    first = {line: said["lines"][line] for line in ("kept", "parameters")}
    bench.check(f"{name}-has-lines", all(str(number) in ours for number in first.values()), f"{first}")
    end = blocks["at_end"]
    inside = sum(size for _, _, size in said["segments"])
    bench.check(f"{name}-inside", not end["outside_blocks"] and end["allocated_bytes"] == inside, f"{end['outside_blocks']} blocks outside; {end['allocated_bytes']} of {inside}")
    # Segment by segment, by its address.
    exported = bench.scratch / f"{name}-ours.pickle"
    trace = sorted(folder.rglob("trace.gputrace"))[0]
    done = subprocess.run([bench.gputrace, "export", "--format", "torch-snapshot", "-o", exported, trace], stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    if not bench.check(f"{name}-export", done.returncode == 0, done.stderr[-300:]):
        return
    with open(exported, "rb") as file:
        snapshot = pickle.load(file)
    in_ours = {segment["address"]: [segment["total_size"], segment["allocated_size"]] for segment in snapshot["segments"]}
    wrong = [(address, size, used, in_ours.get(address)) for address, size, used in said["segments"] if in_ours.get(address) != [size, used]]
    bench.check(f"{name}-segments", not wrong, f"{len(said['segments'])} segments, wrong {wrong[:3]}")
    read = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", "segments", exported], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    bench.row(f"{name}-viewer", "INFO", f"exit {read.returncode}, {read.stdout[-120:]!r} {read.stderr[-120:]!r}")
    page = subprocess.run([bench.gputrace, "memory", "--blocks", trace], stdout=subprocess.PIPE, timeout=bench.limit(60), check=False)
    bench.row(f"{name}-page", "INFO", page.stdout.decode(errors="replace").replace("\n", " | ")[:900])


def streams(bench):
    found = prepared(bench, "streams", "streams")
    if found:
        said, blocks, _, _ = found
        compare(bench, "streams", said, blocks)
        bench.row("streams-pending", "INFO", f"{said['active'] - said['allocated']} B are taken back and wait for a stream, which no call says")


def profiler(bench):
    """The program's own profiler gets the same memory events as without tracing."""
    plain = bench.bare("profiler", bench.script("memory_blocks.py", "profile"))
    traced, _ = bench.traced("profiler", bench.script("memory_blocks.py", "profile"), *BLOCKS)
    ends = [outcome.stdout.strip().splitlines()[-1:] for outcome in (plain, traced)]
    good = plain.code == 0 and traced.code == 0 and ends[0] == ends[1] and '"1"' in "".join(ends[0])
    bench.check("profiler-events", good, f"without {ends[0]}, with {ends[1]} {traced.stderr[-200:]!r}")


def cost(bench):
    """Recording is switched on and off within each of several processes of a launch-bound training step, which leave most of the device idle."""
    command = [bench.python, build.PROGRAMS / "in_process.py", "small"]
    states = {ON: {"memory": "on"}, RECORDED: {"memory": "blocks"}}
    until = time.monotonic() + min(COST_SECONDS, bench.limit(COST_SECONDS))
    measure = lambda number: inprocess.measure(bench.gputrace, command, [], states, COST_SWITCHES, number, bench.scratch, f"memory-blocks-{number}", until, block=COST_BLOCK)
    with ThreadPoolExecutor(COST_PROCESSES) as pool:
        measured = list(pool.map(measure, range(COST_PROCESSES)))
    bench.keep("cost-blocks.json", json.dumps([blocks for blocks, _ in measured]))
    bench.check("cost-process", not any(wrong for _, wrong in measured), f"{[wrong for _, wrong in measured]}")
    effects = [paired.of_process([(block[1], inprocess.quartile(block[4])) for block in blocks], ON) for blocks, _ in measured]
    found = paired.pooled(effects).get(RECORDED)
    blocks = [block for blocks, _ in measured for block in blocks]
    if not bench.check("cost-measured", found, f"{len(blocks)} blocks"):
        return
    base = sorted(inprocess.quartile(block[4]) for block in blocks if block[1] == ON)
    us = base[len(base) // 2] / 1e3
    bench.check("cost-ratio", found["ratio"] <= COST_MOST and found["high"] <= COST_HIGH_MOST,
                f"{inprocess.effect(found)} of a step of {us:.0f} us with memory on; {len(blocks)} switches")


def run(bench):
    if bench.wants("cost"):
        cost(bench)
    if not bench.wants("truth"):
        return
    jobs = {"train": lambda: train(bench, "train", {"PYTORCH_CUDA_ALLOC_CONF": None}),
            "expandable": lambda: train(bench, "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
            "streams": lambda: streams(bench), "profiler": lambda: profiler(bench)}
    bench.parallel(jobs, workers=2)
