"""A real trace of a short PyTorch run, small enough to commit, with its report beside it."""

import json
import shutil

LIMIT_BYTES = 1 << 20


def run(bench):
    for steps in (3, 1):
        command = bench.script("torch_train.py", "--steps", str(steps), "--width", "64", "--batch", "4", "--layers", "1")
        outcome, folder = bench.traced(f"fixture-{steps}", command)
        report = bench.report(f"fixture-{steps}", folder)
        if outcome.code != 0 or not report:
            bench.row("fixture", "FAIL", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
            return
        trace = next(iter(sorted(folder.rglob("trace.gputrace"))))
        size = trace.stat().st_size
        bench.outputs(f"fixture-{steps}", folder)
        if size < LIMIT_BYTES:
            break
        bench.row("size", "INFO", f"{steps} steps: {size} bytes")
    shutil.copyfile(trace, bench.out / "fixture.gputrace")
    (bench.out / "fixture.json").write_text(json.dumps(report, indent=1))
    bench.check("fixture", size < LIMIT_BYTES, f"{steps} steps, {size} bytes, {report.get('launches')} launches")
