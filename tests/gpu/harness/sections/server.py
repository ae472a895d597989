"""A server's kernels stand under the requests that they are for, by exported spans: with OpenTelemetry, and by NVTX names."""

import importlib.util
import json
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from .. import reports

REQUESTS = 200
CARRIED = Path(__file__).resolve().parents[4] / ".carry" / "opentelemetry"


def spans_of(bench, name, folder):
    """All spans of a trace as `export` writes them; None with a FAIL row where it cannot."""
    path = bench.scratch / f"{name}-spans.json"
    command = [bench.gputrace, "export", "--format", "otlp-json", "--all", "-o", path, folder]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(90), check=False)
    if done.returncode:
        bench.row(f"{name}-export", "FAIL", f"exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
        return None
    spans = []
    for line in path.read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                spans += scope["spans"]
    return spans


def grid(span):
    for pair in span["attributes"]:
        if pair["key"] == "gpu.cuda.grid_dim":
            return int(pair["value"]["stringValue"].strip("[]").split(",")[0])
    return 0


def check_requests(bench, name, said, spans):
    """Each request's kernels are under its span, each of its own size, and nobody else's are."""
    by_id = {span["spanId"]: span for span in spans}
    root = next(span for span in spans if span["name"].startswith("process: "))

    def caller(span):
        """The span of the program's that a span is under; the process's where there is none."""
        while span["parentSpanId"] in by_id:
            span = by_id[span["parentSpanId"]]
            if span is root:
                return root["traceId"], root["spanId"]
        return span["traceId"], span["parentSpanId"]

    kernels = [span for span in spans if span["name"].startswith("cuda_kernel: ")]
    under = defaultdict(list)
    for kernel in kernels:
        under[caller(kernel)].append(grid(kernel))
    expected = {(line["trace"], line["span"]): line for line in said}
    wrong = []
    unit = None
    for key, line in sorted(expected.items(), key=lambda item: item[1]["request"]):
        grids = under.pop(key, [])
        # The first request has the grid of one unit, and each other one as many units as its number says.
        unit = unit or (grids[0] // line["request"] if grids else None)
        if Counter(grids) != Counter({(unit or 0) * line["request"]: line["kernels"]}):
            wrong.append((line["request"], line["kernels"], sorted(grids)))
    outside = sum(len(grids) for grids in under.values())
    others = [key for key in under if key != (root["traceId"], root["spanId"])]
    detail = f"{len(kernels)} kernels: {len(kernels) - outside} under {len(said)} requests, {outside} under the process; unit {unit}"
    good = len(said) == REQUESTS and unit and not wrong and not others and outside > 0
    bench.check(f"{name}-requests", good, detail + (f"; wrong {wrong[:5]} (of {len(wrong)}), under strangers {others[:3]}" if wrong or others else ""))


def check_counts(bench, name, spans, report):
    got = reports.counts(report)
    begins = Counter(span["name"].split(":")[0] for span in spans)
    kernels = begins["cuda_kernel"]
    operations = kernels + begins["gpu_transfer"] + begins["gpu_memset"] + begins["cuda_graph"]
    good = kernels == got["kernel_calls"] and operations == report["executed_operations"] and not got["dropped"]
    bench.check(f"{name}-counts", good, f"spans: {kernels} kernels, {operations} operations; report: {got['kernel_calls']}, {report['executed_operations']}, dropped {got['dropped']}")
    slow = [span for span in spans if any(pair["key"] == "code.line.number" for pair in span["attributes"])]
    bench.row(f"{name}-lines", "PASS" if len(slow) >= kernels else "FAIL", f"{len(slow)} of {len(spans)} spans say their line")


def check(bench, way, env, start_name, start):
    name = f"{way}-{start_name}"
    command = bench.script("torch_server.py", way, "--requests", str(REQUESTS))
    outcome, folder = start(name, command, limit_s=120, env=env)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} in {outcome.seconds:.1f}s {outcome.stderr.strip()[-300:] if outcome.code else ''}"):
        return
    said = [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]
    traces = sorted(Path(folder).rglob("trace.gputrace"))
    spans = spans_of(bench, name, traces[0]) if traces else None
    report = bench.report(name, folder)
    if spans is None or report is None:
        bench.row(f"{name}-spans", "FAIL", f"{len(traces)} traces, report {'there' if report else 'missing'}")
        return
    check_requests(bench, name, said, spans)
    check_counts(bench, name, spans, report)


def run(bench):
    ways = {"nvtx": {}}
    if CARRIED.is_dir():
        ways["otel"] = {"PYTHONPATH": str(CARRIED)}
    elif importlib.util.find_spec("opentelemetry"):
        ways["otel"] = {}
    else:
        bench.row("otel", "SKIP", "no opentelemetry-api here (scripts/pack-gpu --wheels carries it)")
    bare = bench.bare("server", bench.script("torch_server.py", "nvtx", "--requests", "20"), limit_s=90)
    if not bench.check("untraced", bare.code == 0, f"{bare.ending()} in {bare.seconds:.1f}s {bare.stderr.strip()[-300:] if bare.code else ''}"):
        return
    for way, env in ways.items():
        check(bench, way, env, "run", bench.traced)
        if not bench.quick:
            check(bench, way, env, "preload", bench.preloaded)
