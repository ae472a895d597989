"""Device metrics in the trace: PyTorch under `gputrace run` against nvidia-smi's readings of the same time, and what sampling costs a launch-bound step.

Blocks of steps with sampling and without take turns in one process, by `gputrace ctl PID set device-metrics=…`.
"""

import re
import statistics
import subprocess
import time

from ..build import PROGRAMS

HELD_MIB = 512
BUSY_SECONDS = 6
STEPS = 40
PAIRS_LEAST, PAIRS_MOST = 24, 400
COST_SECONDS = 200
COST_MOST = 1.002
# Sampled ten times as often as by default, so that an effect stands out: each sample does the same work. A
# step takes about as long as the interval, so that nearly each has a sample in it.
OFTEN, OFTENER = "10ms", 10
# Half of the 95 % interval of the ratio.
COST_INTERVAL = 0.002
FIELDS = ("power.draw", "clocks.sm", "clocks.mem", "temperature.gpu", "memory.used", "total_energy_consumption")
# Each level of ours may leave the range of nvidia-smi's readings by so much: both read at other moments, and
# nvidia-smi less often.
SLACK = {"power_watts": 25, "sm_clock_mhz": 30, "memory_clock_mhz": 1, "temperature_celsius": 1}


class Program:
    """torch_blocks.py under gputrace, and the talk with it."""

    def __init__(self, bench, name, *options):
        self.folder = bench.scratch / "traces" / bench.section / name
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        log = bench.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.err = log.with_suffix(".err")
        command = [bench.gputrace, "run", "-o", self.folder, *options, "--", bench.python, PROGRAMS / "torch_blocks.py", HELD_MIB]
        with open(self.err, "wb") as err:
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)
        self.ready = self.child.stdout.readline()

    def ask(self, text):
        """A block; the mean step in microseconds."""
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()
        found = re.match(r"block (\S+)", self.child.stdout.readline())
        if not found:
            raise RuntimeError(f"the program ended: {self.said()[-300:]}")
        return float(found[1])

    def end(self, limit_s=60):
        self.child.stdin.close()
        try:
            return self.child.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait(10)

    def said(self):
        return self.err.read_text(errors="replace")


def reading():
    """nvidia-smi's values of device 0; None where it has none."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20, check=False)
    if done.returncode:
        # An old one does not know the energy.
        done = subprocess.run([*command[:3], command[3].replace(",total_energy_consumption", ""), command[4]], stdout=subprocess.PIPE, text=True, timeout=20, check=True)
    values = [part.strip() for part in done.stdout.strip().split(",")]
    number = [float(value) if re.fullmatch(r"-?[\d.]+", value) else None for value in values]
    return dict(zip(FIELDS, number + [None] * len(FIELDS)))


def within(bench, name, metrics, readings, field):
    printed = [value[field] for value in readings if value[field] is not None]
    ours = metrics.get(name)
    if not printed or ours is None:
        bench.row(name, "SKIP" if not printed and ours is None else "FAIL", f"ours {ours}, nvidia-smi {printed[:3]}")
        return
    slack = SLACK[name]
    good = min(printed) - slack <= ours["mean"] <= max(printed) + slack and ours["max"] >= statistics.median(printed) - slack
    bench.check(name, good, f"ours mean {ours['mean']}, {ours['min']} to {ours['max']}; nvidia-smi {min(printed)} to {max(printed)}, {len(printed)} readings")


def check_values(bench):
    """One busy program; the report's figures against the readings of the same time."""
    program = Program(bench, "values")
    readings, first, began = [], None, time.monotonic()
    try:
        if not bench.check("values-start", program.ready.startswith("ready"), program.said()[-300:]):
            return
        program.ask("busy 1")  # The averages of power and temperature follow slowly.
        program.child.stdin.write(f"busy {BUSY_SECONDS}\n")
        program.child.stdin.flush()
        first, began = reading(), time.monotonic()
        while time.monotonic() < began + BUSY_SECONDS - 0.5:
            readings.append(reading())
        last, seconds = reading(), time.monotonic() - began
        program.child.stdout.readline()
    finally:
        code = program.end()
    bench.keep("values-summary.txt", program.said())
    report = bench.report("values", program.folder)
    if not bench.check("values-end", code == 0 and report, f"exit {code}"):
        return
    metrics = report["devices"][0].get("metrics")
    if not bench.check("sampled", metrics and metrics["samples"] > 10 * (BUSY_SECONDS - 1) and not metrics["failed_samples"], str(metrics)[:600]):
        return
    wall = report["wall_ns"] / 1e9
    bench.row("samples", "INFO", f"{metrics['samples']} in {metrics['sampled_ns'] / 1e9:.1f} s of {wall:.1f} s, trace {(program.folder / 'trace.gputrace').stat().st_size >> 10} KiB")
    # Start-up is in the minimum and the mean of the whole run; the peak and the busy readings must agree.
    busy = {name: dict(metrics[name], mean=metrics[name]["max"]) for name in ("power_watts", "sm_clock_mhz", "memory_clock_mhz", "temperature_celsius") if name in metrics}
    for name, field in (("power_watts", "power.draw"), ("sm_clock_mhz", "clocks.sm"), ("memory_clock_mhz", "clocks.mem"), ("temperature_celsius", "temperature.gpu")):
        within(bench, name, busy, readings, field)
    used = [value["memory.used"] for value in readings if value["memory.used"] is not None]
    if used and "memory_peak_bytes" in metrics:
        peak = metrics["memory_peak_bytes"] / (1 << 20)
        bench.check("memory-peak", abs(peak - max(used)) <= 1, f"ours {peak:.1f} MiB, nvidia-smi {max(used)} MiB")
    check_energy(bench, metrics, (first, last, seconds), readings)
    text = " ".join(program.said().split())
    bench.check("summary", re.search(r" J; \d+ W, peak \d+ W; \d+ °C, peak \d+ °C; memory peak ", text), re.findall(r"[\d,]+ J; .*?memory peak \S+ \S+", text)[:1])


def check_energy(bench, metrics, counted, readings):
    """The mean power of the busy seconds by nvidia-smi bounds what the trace says of the whole run."""
    energy = metrics.get("energy")
    if not energy:
        bench.row("energy", "SKIP", "the device has neither an energy counter nor power")
        return
    ours = energy["joules"] / (metrics["sampled_ns"] / 1e9)
    first, last, seconds = counted
    counter = (first["total_energy_consumption"], last["total_energy_consumption"])
    smi = (counter[1] - counter[0]) / 1e3 / seconds if None not in counter else None
    power = [value["power.draw"] for value in readings if value["power.draw"] is not None]
    integral = metrics["power_watts"]["mean"]
    bench.row("energy", "INFO", f"{energy['joules']:.0f} J by {energy['source']}: {ours:.0f} W; mean of our samples {integral:.0f} W; nvidia-smi while busy {smi and f'{smi:.0f} W by its counter'}, {statistics.mean(power):.0f} W by its readings")
    # The driver's power lags by up to a second, and the run begins idle.
    bench.check("energy-and-power", abs(ours - integral) <= 0.15 * integral + 10, f"counter {ours:.0f} W, mean power {integral:.0f} W")


def interval(ratios):
    """Half of the 95 % interval of their median, from their order alone: it takes no shape of the distribution for granted,
    and single blocks in which the machine did something else do not widen it."""
    ordered, away = sorted(ratios), 0.98 * len(ratios) ** 0.5
    middle = len(ordered) / 2
    return (ordered[min(int(middle + away) + 1, len(ordered)) - 1] - ordered[max(int(middle - away), 1) - 1]) / 2


def check_cost(bench):
    """Blocks with sampling and without, by turns in one process: the ratio of their medians, pair by pair."""
    program = Program(bench, "cost")

    def switch(value):
        done = subprocess.run([bench.gputrace, "ctl", str(program.child.pid), "set", f"device-metrics={value}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20, check=False)
        return done.returncode, done.stdout.strip()

    try:
        if not bench.check("cost-start", program.ready.startswith("ready"), program.said()[-300:]):
            return
        code, said = switch("off")
        if code:
            bench.row("cost", "SKIP", f"ctl set device-metrics: exit {code}: {said[-200:]}")
            return
        program.ask(f"steps {STEPS}")
        ratios, means, until = [], [], time.monotonic() + COST_SECONDS
        for pair in range(PAIRS_MOST):
            times = {}
            for value in ("off", OFTEN) if pair % 2 else (OFTEN, "off"):
                switch(value)
                program.ask("steps 10")  # Opening the device is no part of the steady state.
                times[value] = program.ask(f"steps {STEPS}")
            ratios.append(1 + (times[OFTEN] / times["off"] - 1) / OFTENER)
            means.append(times["off"])
            if pair + 1 >= PAIRS_LEAST and (bench.time_left() < 40 or time.monotonic() > until or interval(ratios) < COST_INTERVAL / 2):
                break
    finally:
        code = program.end()
    ratio, half = statistics.median(ratios), interval(ratios)
    detail = f"step {statistics.median(means):.0f} µs; with sampling each 100 ms {ratio:.5f} ± {half:.5f} of without (a tenth of the effect at {OFTEN}; {len(ratios)} pairs of {STEPS} steps), at most {COST_MOST}"
    bench.check("cost", ratio <= COST_MOST and half <= COST_INTERVAL, detail)
    bench.check("cost-end", code == 0, f"exit {code}")


def run(bench):
    try:
        reading()
    except (OSError, subprocess.SubprocessError) as error:
        bench.row("nvidia-smi", "SKIP", error)
        return
    if subprocess.run([bench.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        bench.row("torch", "SKIP", "no PyTorch in this python3")
        return
    check_values(bench)
    check_cost(bench)
    off, folder = bench.traced("off", bench.script("torch_busy.py", "16"), "--device-metrics=off", limit_s=60)
    report = bench.report("off", folder)
    bench.check("off", off.code == 0 and report and "metrics" not in report["devices"][0], off.ending())
