"""scripts/bench-overhead, its table copied to the output folder."""

from ..build import GPU_TESTS
from .. import process


def run(bench):
    seconds = int(min(bench.overhead_seconds, bench.time_left() - 75))
    if seconds < 60:
        bench.row("overhead", "SKIP", "no time left")
        return
    script = GPU_TESTS.parent.parent / "scripts" / "bench-overhead"
    command = [bench.python, script, "--bin", bench.gputrace, "--out", bench.out, "--builds", bench.builder.folder, "--seconds", seconds]
    outcome = process.run(command, bench.log("bench-overhead"), seconds + 60)
    print(outcome.stdout[-6000:])
    bench.check("overhead", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:] if outcome.code else ''}")
