"""`gputrace devices`, `monitor` and `top` on a real device against nvidia-smi: idle, busy, PyTorch; and what monitoring costs."""

import json
import re
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

from .. import process, smi
from ..build import PROGRAMS

MIB = 1 << 20
HELD_MIB = 640
# With one reading of each value that is read once a minute.
COST_SECONDS = 60
# Of one core at 100 ms with one device, in percent.
COST_MOST = 0.1
READ_MOST_US = 1000
# In whole MiB as nvidia-smi prints them.
MEMORY = ("memory.used", "memory.free", "memory.reserved")
# By how much a value of a steady device may leave the range of the readings of nvidia-smi around it: both ask at other
# instants. What is not named here may not leave it at all.
SLACK = {
    "utilization.gpu_percent": 3, "utilization.memory_percent": 3, "thermal.temperature_celsius": 1, "thermal.memory_temperature_celsius": 1,
    "power.power_draw_watts": 5, "clocks.graphics_mhz": 15, "clocks.sm_mhz": 15, "clocks.video_mhz": 15,
    "memory.used": 1, "memory.free": 1, "memory.reserved": 1, "power.power_limit_watts": 0.01,
}
# So many of the samples must be within: a value may jump between two readings and back.
WITHIN_LEAST = 0.9


def at(value, path):
    """The value at "a.b.c"; None where something on the way is absent."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


class Started:
    """A program of ours that runs beside the checks."""

    def __init__(self, bench, name, command, gives_stdin=False):
        log = bench.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.out, self.err = log.with_suffix(".out"), log.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            stdin = subprocess.PIPE if gives_stdin else subprocess.DEVNULL
            self.child = subprocess.Popen([str(part) for part in command], stdin=stdin, stdout=out, stderr=err, start_new_session=True)

    def waits_for(self, path, pattern, limit_s):
        """The match of what it writes; None where it ends or the time is over."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            found = re.search(pattern, path.read_text(errors="replace"))
            if found or self.child.poll() is not None:
                return found
            time.sleep(0.05)
        return None

    def end(self, limit_s=30):
        """Closes its stdin, or sends SIGTERM; its exit code."""
        if self.child.stdin:
            self.child.stdin.close()
        else:
            self.child.terminate()
        try:
            return self.child.wait(limit_s)
        except subprocess.TimeoutExpired:
            for pid in process.session_members(self.child.pid):
                subprocess.run(["kill", "-KILL", str(pid)], check=False)
            return self.child.wait(10)

    def threads(self):
        """Processor time of each thread until now, in milliseconds by its name."""
        times = {}
        for task in Path(f"/proc/{self.child.pid}/task").iterdir():
            try:
                used, name = int((task / "schedstat").read_text().split()[0]), (task / "comm").read_text().strip()
            except (OSError, IndexError, ValueError):
                continue
            times[name] = times.get(name, 0) + used / 1e6
        return times

    def processor_seconds(self):
        """Processor time of all its threads until now, those that ended too."""
        # The number of another process's clock, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~self.child.pid << 3) | 2)


def gputrace_json(bench, *command):
    done = subprocess.run([bench.gputrace, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=bench.limit(40), check=False)
    if done.returncode:
        raise RuntimeError(f"gputrace {' '.join(command)}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return json.loads(done.stdout)


# What does not change.

def check_devices(bench, reading):
    listed = gputrace_json(bench, "devices", "--json")
    bench.keep("devices.json", json.dumps(listed, indent=1))
    by_uuid = {device["uuid"]: device for device in listed["devices"]}
    bench.check("devices", [gpu.uuid for gpu in reading.gpus] == list(by_uuid) and not listed["problems"], f"{len(by_uuid)} devices; problems {listed['problems']}")
    for number, gpu in enumerate(reading.gpus):
        device = by_uuid.get(gpu.uuid)
        if device is None:
            continue
        wrong, equal, absent = [], 0, []
        for path, printed in gpu.static().items():
            got = at(device, path)
            if printed is None:
                absent.append(path)
            elif path == "vram_total":
                # Of a divided device nvidia-smi prints what its driver shares with the caller.
                equal += abs((got or 0) / MIB - printed) < 1
                wrong += [] if abs((got or 0) / MIB - printed) < 1 else [f"{path}: {got} for {printed} MiB"]
            elif got == printed or isinstance(printed, float) and got is not None and abs(got - printed) < 0.01:
                equal += 1
            else:
                wrong.append(f"{path}: {got!r} for {printed!r}")
        bench.check(f"static-{number}", not wrong, f"{equal} fields equal; not printed by nvidia-smi: {', '.join(absent) or 'none'}" + (f"; WRONG {'; '.join(wrong)}" if wrong else ""))
        cuda = device.get("cuda") or {}
        bench.check(f"cuda-{number}", bool(cuda.get("multiprocessors")), f"{device['name']}, {cuda.get('multiprocessors')} multiprocessors, capability {device['compute_capability']}, NUMA node {device['numa_node']}")
    check_links(bench, listed["links"], len(reading.gpus))
    return listed["devices"]


def check_links(bench, links, count):
    if count < 2:
        bench.row("links", "SKIP", "one device here")
        return
    words = smi.topology()
    ours = {tuple(link["devices"]): link for link in links}
    wrong = []
    for pair, word in words.items():
        link = ours.get(pair, {})
        nvlinks = re.fullmatch(r"NV(\d+)", word)
        # Behind an NVSwitch a device's links end at the switch, which nvidia-smi counts for the pair.
        good = link.get("nvlinks") in (None, int(nvlinks[1])) if nvlinks else link.get("path") == word
        wrong += [] if good else [f"{pair}: {link} for {word}"]
    bench.check("links", words and not wrong, f"nvidia-smi {words}; ours {[(link['devices'], link['path'], link['nvlinks']) for link in links]}" + (f"; WRONG {wrong}" if wrong else ""))


# What changes.

class Watch:
    """Samples of `gputrace monitor` each 100 ms, and readings of nvidia-smi meanwhile."""

    def __init__(self, bench, name, seconds):
        monitor = Started(bench, f"monitor-{name}", [bench.gputrace, "monitor", "--interval", "100ms", "--json-lines"])
        monitor.waits_for(monitor.out, r"\n", 30)
        self.readings = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(self.readings) < 3:
            self.readings.append(smi.read())
            time.sleep(0.1)
        self.exit_code = monitor.end()
        self.samples = [json.loads(line) for line in monitor.out.read_text().splitlines()]
        self.said = monitor.err.read_text(errors="replace").strip()
        bench.keep(f"{name}-last.json", json.dumps(self.samples[-1:], indent=1))

    def of(self, uuid):
        """The device's samples that readings surround."""
        first, last = self.readings[0].begin, self.readings[-1].end
        return [sample for sample in self.samples if sample["uuid"] == uuid and first <= sample["wall_time"] <= last]

    def around(self, number, when):
        """The device as the readings before and after that moment, and one that was under way, have it."""
        before = [reading for reading in self.readings if reading.end <= when][-1:]
        under_way = [reading for reading in self.readings if reading.begin <= when <= reading.end]
        after = [reading for reading in self.readings if reading.begin >= when][:1]
        return [reading.gpus[number] for reading in before + under_way + after]


def check_values(bench, phase, watch, number, uuid):
    """Each value of each sample lies between the readings around it."""
    samples = watch.of(uuid)
    if not bench.check(f"{phase}-samples-{number}", watch.exit_code == 0 and samples and not any("problem" in sample for sample in samples),
                       f"{len(samples)} samples, {len(watch.readings)} readings of nvidia-smi, exit {watch.exit_code} {watch.said[-200:]}"):
        return
    table, wrong = [], []
    gpus = {id(sample): watch.around(number, sample["wall_time"]) for sample in samples}
    dynamic = {id(gpu): gpu.dynamic() for found in gpus.values() for gpu in found}
    for path in watch.readings[0].gpus[number].dynamic():
        strict = within = counted = 0
        values = []
        for sample in samples:
            value = at(sample, path)
            printed = [dynamic[id(gpu)][path] for gpu in gpus[id(sample)]]
            printed = [number for number in printed if number is not None]
            if value is None or not printed:
                # Reported by one of the two only; what nvidia-smi prints must be there after the first slow query.
                wrong += [f"{path}: {value} for {printed}"] if printed and sample is samples[-1] else []
                continue
            value = value / MIB if path in MEMORY else value
            # nvidia-smi rounds what it prints of memory to whole MiB, down or up.
            low, high = min(printed), max(printed)
            exact = 1 if path in MEMORY else 0.01
            counted += 1
            strict += low - exact <= value <= high + exact
            within += low - SLACK.get(path, 0) - 0.01 <= value <= high + SLACK.get(path, 0) + 0.01
            values.append(value)
        if counted:
            table.append(f"{path} {min(values):g}..{max(values):g} {strict}/{counted}")
            if within < WITHIN_LEAST * counted:
                wrong.append(f"{path}: {within} of {counted} within, ours {min(values):g}..{max(values):g}")
    bench.keep(f"{phase}-values-{number}.txt", "\n".join(table))
    bench.check(f"{phase}-values-{number}", not wrong and len(table) > 5, f"{len(table)} values; WRONG {'; '.join(wrong)}" if wrong else f"(ours, samples between two readings) {', '.join(table)}")
    check_memory(bench, phase, samples, gpus, number)
    check_reasons(bench, phase, samples, gpus, number)
    power = [at(sample, "power.power_draw_watts") for sample in samples]
    energy = [at(sample, "power.energy_joules") for sample in samples]
    if None not in power + energy and len(samples) > 20:
        seconds = samples[-1]["wall_time"] - samples[0]["wall_time"]
        watts = (energy[-1] - energy[0]) / seconds
        bench.row(f"{phase}-energy-{number}", "INFO", f"{energy[-1] - energy[0]:.0f} J in {seconds:.1f} s are {watts:.0f} W; mean of power {statistics.mean(power):.0f} W")


def check_memory(bench, phase, samples, gpus, number):
    """Where both readings around a sample agree on the memory, the sample has it too."""
    most, counted = 0.0, 0
    for sample in samples:
        printed = {gpu.dynamic()["memory.used"] for gpu in gpus[id(sample)]}
        if len(printed) == 1 and None not in printed and len(gpus[id(sample)]) > 1:
            most, counted = max(most, abs(sample["memory"]["used"] / MIB - printed.pop())), counted + 1
    if not counted:
        bench.row(f"{phase}-memory-{number}", "INFO", "nvidia-smi's readings never agreed")
        return
    bench.check(f"{phase}-memory-{number}", most <= 1, f"used at most {most:.2f} MiB from nvidia-smi's, {counted} samples between equal readings")


def check_reasons(bench, phase, samples, gpus, number):
    wrong = []
    for sample in samples:
        printed = [gpu.reasons() for gpu in gpus[id(sample)]]
        ours = at(sample, "throttle.reasons")
        if None in printed or ours is None:
            bench.row(f"{phase}-reasons-{number}", "SKIP" if ours is None and printed == [None] * len(printed) else "FAIL", f"ours {ours}, nvidia-smi {printed}")
            return
        ours = {name for name in ours if not name.startswith("unknown")}
        if not set.intersection(*printed) <= ours <= set.union(*printed):
            wrong.append((sorted(ours), [sorted(names) for names in printed]))
    names = sorted({name for sample in samples for name in sample["throttle"]["reasons"]})
    bench.check(f"{phase}-reasons-{number}", len(wrong) <= (1 - WITHIN_LEAST) * len(samples), f"{names}; {len(samples) - len(wrong)} of {len(samples)} samples between the readings {wrong[:2] or ''}")


def check_processes(bench, phase, watch, number, uuid, pid, held_mib):
    """The same processes with the same memory; the busy one among them where the driver's process ids are ours."""
    samples = watch.of(uuid)
    if not samples:
        return
    last = samples[-1]
    ours = {entry["pid"]: entry for entry in last["processes"] or []}
    readings = [gpu.processes() for gpu in watch.around(number, last["wall_time"])]
    wrong = [f"{found} for {sorted(ours)}" for found in readings if set(found) != set(ours)]
    for found in readings:
        for one, printed in found.items():
            memory = ours.get(one, {}).get("memory")
            if printed is not None and (memory is None or abs(memory / MIB - printed) > 1):
                wrong.append(f"process {one}: {memory} for {printed} MiB")
    shown = [(entry["pid"], entry["name"], entry["memory"] and round(entry["memory"] / MIB), entry["gpu_percent"], "host" if entry["is_host_pid"] else "ours") for entry in ours.values()]
    bench.check(f"{phase}-processes-{number}", not wrong, f"(pid, name, MiB, %, whose) {shown}" + (f"; WRONG {wrong}" if wrong else ""))
    if pid in ours:
        memory = ours[pid]["memory"]
        good = ours[pid]["name"] and (memory is None or memory >= held_mib * MIB)
        bench.check(f"{phase}-process-{number}", good, f"{pid} is {ours[pid]['name']}, user {ours[pid]['user']}, {memory and memory // MIB} MiB of which it allocated {held_mib}")
    else:
        # In a container the driver gives the host's ids, or none.
        bench.check(f"{phase}-process-{number}", all(entry["is_host_pid"] for entry in ours.values()), f"{pid} is not listed; {len(ours)} processes with ids of the host")


def check_cost(bench, devices):
    """Processor time of the daemon at 100 ms with one device, or with all of them; then its page."""
    monitor = Started(bench, "daemon", [bench.gputrace, "monitor", "--interval", "100ms", "--prometheus", "127.0.0.1:0"])
    # One that prints each sample, and so takes all of them.
    printing = Started(bench, "daemon-lines", [bench.gputrace, "monitor", "--interval", "100ms", "--json-lines"])
    try:
        found = monitor.waits_for(monitor.err, r"http://\S+/metrics", 30)
        if not bench.check("page-address", found, monitor.err.read_text(errors="replace")[-200:].strip()):
            return
        time.sleep(1.5)
        begin, before, threads, printed = time.monotonic(), monitor.processor_seconds(), monitor.threads(), printing.processor_seconds()
        time.sleep(COST_SECONDS)
        used, seconds = monitor.processor_seconds() - before, time.monotonic() - begin
        by_thread = {name: round(now - threads.get(name, 0), 2) for name, now in monitor.threads().items()}
        percent = used / seconds * 100
        each = percent / len(devices)
        bench.check("cost", each < COST_MOST, f"{percent:.3f} % of one core for {len(devices)} devices, {each:.3f} % each ({used * 1e3:.1f} ms in {seconds:.1f} s at 100 ms; ms by thread {by_thread})")
        used = printing.processor_seconds() - printed
        bench.row("cost-lines", "INFO", f"{used / seconds / len(devices):.3%} of one core a device where each sample is printed")
        check_page(bench, found[0], devices)
    finally:
        printing.end()
        bench.check("daemon-end", monitor.end() == 0, monitor.err.read_text(errors="replace")[-200:].strip())


LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def check_page(bench, address, devices):
    begin = smi.read()
    with urllib.request.urlopen(address, timeout=10) as answer:
        kind, text = answer.headers.get("Content-Type", ""), answer.read().decode()
    after = smi.read()
    bench.keep("page.txt", text)
    families, series, bad = set(), {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            families.add(line.split()[2])
        elif line and not line.startswith("#"):
            found = LINE.fullmatch(line)
            if not found or found[1] not in families:
                bad.append(line)
                continue
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            series.setdefault(found[1], []).append((labels, float(found[3])))
    bench.check("page", not bad and kind.startswith("text/plain") and len(families) > 20, f"{len(families)} families, {sum(map(len, series.values()))} series, {kind}; wrong {bad[:2]}")
    used = {labels["UUID"]: value for labels, value in series.get("DCGM_FI_DEV_FB_USED", [])}
    ranges = {gpu.uuid: sorted(number for number in (gpu.number("fb_memory_usage/used"), later.number("fb_memory_usage/used")) if number is not None) for gpu, later in zip(begin.gpus, after.gpus)}
    good = set(used) == set(ranges) and all(found[0] - 1 <= used[uuid] <= found[-1] + 1 for uuid, found in ranges.items() if found)
    up = [value for _, value in series.get("gputrace_gpu_up", [])]
    bench.check("page-values", good and up == [1.0] * len(devices), f"used MiB {used}, nvidia-smi {ranges}, up {up}")


def check_read_time(bench, watches):
    for phase, watch in watches.items():
        times = sorted(sample["read_us"] for sample in watch.samples if sample.get("read_us") is not None)
        if len(times) < 20:
            bench.row(f"{phase}-read", "FAIL", f"{len(times)} samples")
            continue
        median, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        bench.check(f"{phase}-read", median < READ_MOST_US, f"a collection without slow queries: median {median:.0f} us, p99 {p99:.0f} us, at most {times[-1]:.0f} us, {len(times)} samples")


def check_top(bench, phase, pid, kernel):
    """`top` has the running traced program's kernels."""
    until, found = time.monotonic() + 15, None
    while time.monotonic() < until:
        scene = gputrace_json(bench, "top", "--once", "--json")
        found = next((session for session in scene["sessions"] if pid in (session.get("processes") or [])), None)
        rows = at(found or {}, "tables.kernels") or []
        if any(re.search(kernel, row["name"]) and row["calls"] > 0 for row in rows):
            break
        time.sleep(0.5)
    bench.keep(f"{phase}-top.json", json.dumps(scene, indent=1))
    rows = at(found or {}, "tables.kernels") or []
    good = any(re.search(kernel, row["name"]) and row["calls"] > 0 and row["total_ns"] > 0 for row in rows)
    bench.check(f"{phase}-top", good, f"launches {at(found or {}, 'launches')}, kernels {[(row['name'][:40], row['calls']) for row in rows[:3]]}, allocations {[device['allocations'] for device in scene['devices']]}, problems {scene['problems']}")
    listed = [row for row in scene["processes"] if row["pid"] == pid]
    if listed:
        bench.check(f"{phase}-top-process", listed[0]["is_traced"] is True, listed[0])


def busy(bench, phase, devices, command, is_busy, kernel):
    """A program under `gputrace run` that works until its stdin ends: every check while it runs. Returns the samples."""
    folder = bench.scratch / "traces" / "monitor" / phase
    folder.parent.mkdir(parents=True, exist_ok=True)
    program = Started(bench, phase, [bench.gputrace, "run", "-o", folder, "--", *command], gives_stdin=True)
    watch = None
    try:
        ready = program.waits_for(program.out, r"ready (\d+)", 60)
        if not bench.check(f"{phase}-ready", ready, program.err.read_text(errors="replace")[-300:].strip()):
            return None
        pid = int(ready[1])
        time.sleep(2)  # Until utilisation and power are those of the load.
        watch = Watch(bench, phase, 6)
        for number, device in enumerate(devices):
            check_values(bench, phase, watch, number, device["uuid"])
            if number in is_busy:
                check_processes(bench, phase, watch, number, device["uuid"], pid, is_busy[number])
                load = [at(sample, "utilization.gpu_percent") for sample in watch.of(device["uuid"])]
                divided = watch.readings[0].gpus[number].is_divided
                if divided or None in load or not load:
                    bench.row(f"{phase}-load-{number}", "SKIP" if divided else "FAIL", "the driver has no utilisation of a divided device" if divided else load[:5])
                else:
                    bench.check(f"{phase}-load-{number}", statistics.median(load) >= 90, f"median {statistics.median(load)} %")
        check_top(bench, phase, pid, kernel)
    finally:
        code = program.end(60)
        bench.check(f"{phase}-end", code == 0, f"exit {code} {program.err.read_text(errors='replace')[-200:].strip() if code else ''}")
    return watch


def run(bench):
    try:
        reading = smi.read()
    except (OSError, subprocess.SubprocessError) as error:
        bench.row("nvidia-smi", "SKIP", error)
        return
    devices = check_devices(bench, reading)
    if bench.wants("cost"):
        check_cost(bench, devices)
    if not bench.wants("values"):
        return
    watches = {"idle": Watch(bench, "idle", 5)}
    for number, device in enumerate(devices):
        check_values(bench, "idle", watches["idle"], number, device["uuid"])
    if bench.programs.get("monitor_busy"):
        held = {number: HELD_MIB * (number + 1) for number in range(len(devices))}
        watches["busy"] = busy(bench, "busy", devices, [bench.programs["monitor_busy"], HELD_MIB], held, "spin_for")
    else:
        bench.row("busy", "FAIL", "monitor_busy was not built")
    if subprocess.run([bench.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        watches["torch"] = busy(bench, "torch", devices, [bench.python, PROGRAMS / "torch_busy.py", HELD_MIB], {0: HELD_MIB}, "gemm|sgemm|xmma|cutlass|Kernel")
    else:
        bench.row("torch", "SKIP", "no PyTorch in this python3")
    check_read_time(bench, {phase: watch for phase, watch in watches.items() if watch})
