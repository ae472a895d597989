"""NVIDIA's own tools around a traced program, and a tool that the driver loads: the program ends as without us, the tool says
the same, launches are counted, and where device times are not to be had a line says so."""

import re

from . import machine, reports
from .shared_cupti import difference, environment, warnings


def tools(bench):
    """{name: command prefix} of what this machine has."""
    out = bench.scratch / "tools"
    out.mkdir(exist_ok=True)
    found = {}
    for name, path, options in (
        ("nsys", machine.nsys(), lambda way: ["profile", "--trace=cuda", "--force-overwrite=true", "-o", out / f"nsys-{way}"]),
        ("ncu", machine.tool("ncu"), lambda way: ["--target-processes", "all", "--clock-control", "none", "--metrics", "sm__cycles_elapsed.max", "-c", "3"]),
        ("compute-sanitizer", machine.tool("compute-sanitizer"), lambda way: ["--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9"]),
    ):
        found[name] = (path, options)
    return found


def messages(text):
    """What a tool and a program said, without numbers, paths and our own lines."""
    lines = (re.sub(r"\d+", "#", re.sub(r"\S*/\S+", "PATH", line)).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and "gputrace" not in line)


def own(bench, name, folder, want):
    """Launches exact; device times complete, or a warning that they are not."""
    report = bench.report(name, folder)
    if not report or not want:
        return
    wrong = reports.differences(want, reports.counts(report), ("launches", "graph_launches"))
    covered, said = report.get("device_time_coverage") or 0, warnings(report)
    # A tool may stand between the program and the driver: then it is said that calls are not counted.
    uncounted = any("not counted" in line for line in said)
    bench.check(f"{name}-counts", uncounted or not wrong and (covered > 0.9999 or bool(said)), f"{'; '.join(wrong) or 'launches exact'}; coverage {covered}; said {said}")


def around(bench, name, path, options):
    vadd = bench.programs.get("vadd")
    if not path or not vadd:
        bench.row(name, "SKIP", f"there is no {name} on this machine" if vadd else "vadd was not built")
        return
    bare = bench.bare(name, [path, *options("bare"), vadd, "7"], 90)
    want = reports.expected(bare.stdout)
    bench.row(f"{name}-untraced", "INFO" if want else "SKIP", f"{path}: {bare.ending()} in {bare.seconds:.1f}s {(bare.stdout + bare.stderr).strip()[-200:]!r}")
    if bare.hung:
        return
    for way in ("run", "preload"):
        folder = bench.scratch / "traces" / "tools" / f"{name}-{way}"
        folder.mkdir(parents=True, exist_ok=True)
        inner = [bench.gputrace, "run", "-o", folder, "--", vadd, "7"] if way == "run" else [vadd, "7"]
        env = {} if way == "run" else {"LD_PRELOAD": bench.library(), bench.output_variable(): folder}
        outcome = bench.bare(f"{name}-{way}", [path, *options(way), *inner], 120, env)
        printed = not want or reports.expected(outcome.stdout) == want
        bench.check(f"{name}-{way}-exit", outcome.code == bare.code and printed, f"{outcome.ending()}, without us {bare.ending()}; " + ("the program's output is there" if printed else f"the program's output is missing: {outcome.stdout[-200:]!r} {outcome.stderr[-300:]!r}"))
        same = messages(bare.stdout) == messages(outcome.stdout)
        bench.check(f"{name}-{way}-messages", same, "the tool says the same" if same else difference(messages(bare.stdout), messages(outcome.stdout)))
        if want and not outcome.hung:
            own(bench, f"{name}-{way}", folder, want)


def injected(bench):
    """CUDA_INJECTION64_PATH: the driver loads a tool inside cuInit, before we subscribe."""
    vadd, library = bench.programs.get("vadd"), bench.programs.get("injection")
    if not vadd or not library:
        bench.row("injection", "FAIL", "was not built")
        return
    counted = {}
    for way in ("bare", "run", "preload"):
        out = bench.scratch / f"injection-{way}.txt"
        env = {**environment(), "CUDA_INJECTION64_PATH": library, "INJECTION_OUT": out}
        if way == "bare":
            bare = outcome = bench.bare("injection", [vadd, "7"], 60, env)
        else:
            outcome, folder = (bench.traced if way == "run" else bench.preloaded)(f"injection-{way}", [vadd, "7"], env=env, limit_s=90)
        counted[way] = out.read_text().strip() if out.exists() else "nothing written"
        if way == "bare":
            works = counted[way].startswith("subscribe=0")
            bench.row("injection-untraced", "INFO" if works else "SKIP", f"{bare.ending()} {counted[way]} {'' if works else bare.stderr[-200:]!r}")
            if not works:
                return
            continue
        bench.check(f"injection-{way}-exit", outcome.code == bare.code and outcome.stdout == bare.stdout, f"{outcome.ending()}, without us {bare.ending()} {'' if outcome.stdout == bare.stdout else outcome.stderr[-300:]!r}")
        bench.check(f"injection-{way}-tool", counted[way] == counted["bare"], f"{counted[way]}; without us {counted['bare']}")
        own(bench, f"injection-{way}", folder, reports.expected(bare.stdout))


def jobs(bench):
    made = {name: (lambda name=name, path=path, options=options: around(bench, name, path, options)) for name, (path, options) in tools(bench).items()}
    made["injection"] = lambda: injected(bench)
    return made
