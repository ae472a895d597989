"""25 million kernel records through graph replay; memory of device, program and collector stays bounded
and every time is valid to the end."""

import re

from .. import reports
from ..residence import Residence

NODES = 1000
# Device memory in use above the untraced run's most: CUPTI's device buffers, which must not grow with the records.
DEVICE_BYTES, DEVICE_GROWTH_BYTES = 256 << 20, 32 << 20
# The pool of buffers that CUPTI fills is mapped as it is needed: 64 MiB at most, and a little for what is late.
RESIDENT_GROWTH_BYTES = 72 << 20


def device_memory(text):
    """[(replays, bytes in use)]"""
    return [(int(replays), int(size)) for replays, size in re.findall(r"^INFO replays=(\d+) used_bytes=(\d+)", text, re.MULTILINE)]


def loop(text):
    """(replays, seconds) of the timed loop."""
    found = re.search(r"^INFO loop replays=(\d+) seconds=([\d.]+)", text, re.MULTILINE)
    return (int(found[1]), float(found[2])) if found else (0, 0.0)


def run(bench):
    program = bench.programs.get("graph_soak")
    if not program:
        bench.row("graph-soak", "FAIL", "was not built")
        return
    replays = bench.soak_records // NODES
    bare = bench.bare("untraced", [program, max(100, replays // 10), "30"], 60)
    if not bench.check("untraced", bare.code == 0, f"{bare.ending()} {loop(bare.stderr)} {bare.stderr[-200:] if bare.code else ''}"):
        return
    # What is left, less the time that reading the trace back takes.
    seconds = max(10, min(120, bench.time_left() - 90))
    with Residence({"collector": bench.gputrace, "program": program}) as seen:
        outcome, folder = bench.traced("soak", [program, replays, f"{seconds:.0f}"], limit_s=seconds + 60)
    done, took = loop(outcome.stderr)
    bench.check("exit", outcome.code == 0, f"{outcome.ending()} in {outcome.seconds:.0f}s")
    bench.check("records", done >= replays, f"{done * NODES / 1e6:.2f} million of {replays * NODES / 1e6:.0f} million kernels in {took:.0f}s" + ("" if done >= replays else ": the time was over; --soak-records or --limit"))
    bare_done, bare_took = loop(bare.stderr)
    if done and bare_done:
        bench.row("wall-ratio", "INFO", f"{(took / done) / (bare_took / bare_done):.3f}: {took / done * 1e6 / NODES:.3f} us a kernel, untraced {bare_took / bare_done * 1e6 / NODES:.3f} us")
    want, got = device_memory(bare.stderr), device_memory(outcome.stderr)
    if want and len(got) > 4:
        above, growth = max(size for _, size in got) - max(size for _, size in want), got[-1][1] - got[len(got) // 4][1]
        bench.check("device-memory", above <= DEVICE_BYTES and growth <= DEVICE_GROWTH_BYTES, f"{above / 1048576:.0f} MiB above untraced (at most {DEVICE_BYTES >> 20}), {growth / 1048576:.0f} MiB more at the end than after a quarter: {[size >> 20 for _, size in got]} MiB")
    else:
        bench.row("device-memory", "FAIL", f"the program did not say: {outcome.stderr[:300]!r}")
    for name in ("collector", "program"):
        grown = seen.growth(name)
        if grown is None:
            bench.row(f"{name}-memory", "FAIL", f"not seen running: {len(seen.samples[name])} samples")
            continue
        bench.check(f"{name}-memory", grown[1] - grown[0] <= RESIDENT_GROWTH_BYTES, f"{grown[0] >> 20} MiB after a quarter, at most {grown[1] >> 20} MiB later ({len(seen.samples[name])} samples)")
    traces = sorted(folder.rglob("trace.gputrace")) if folder.exists() else []
    bench.row("trace", "INFO", f"{sum(path.stat().st_size for path in traces) / 1e6:.0f} MB, {sum(path.stat().st_size for path in traces) / max(1, done * NODES):.1f} bytes a kernel")
    report = bench.report("soak", folder)
    if not report:
        return
    hand = reports.expected(outcome.stdout) or {}
    wrong = reports.differences(hand, reports.counts(report))
    bench.check("counts", bool(hand) and not wrong and not report.get("dropped"), f"{'; '.join(wrong) or 'exact'}; dropped {report.get('dropped')} executed {report.get('executed_operations')}")
    times = report.get("kernels", [{}])[0]
    notices = [notice["text"] for notice in report.get("notices") or [] if notice.get("severity") == "warning"]
    # A record with a wrong clock need not look invalid by itself, but it makes some span or duration impossible.
    spans = [(device.get("busy_ns") or 0, device.get("active_span_ns") or 0) for device in report.get("devices") or []]
    sane = (times.get("max_ns") or 0) < 1e9 and (times.get("median_ns") or 0) > 0 and all(span <= 1.01 * report["wall_ns"] and busy <= span for busy, span in spans)
    cured = (report.get("device_time_coverage") or 0) >= 0.9999 and not report.get("invalid_timing")
    bench.check("times", sane and (cured or bool(notices)), f"coverage {report.get('device_time_coverage')} invalid {report.get('invalid_timing')} median {times.get('median_ns')} p99 {times.get('p99_ns')} max {times.get('max_ns')} ns, busy and span {spans} of {report.get('wall_ns')}, warnings {notices}")
