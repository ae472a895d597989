"""Calls that fail in PyTorch: kept at their lines with what they asked for; an ordinary program has none."""

import json


def errors(report):
    return (report.get("errors") or {}).get("list") or []


def clean(bench):
    outcome, folder = bench.traced("clean", bench.script("torch_failures.py", "clean"))
    report = bench.report("clean", folder)
    if not bench.check("clean-exit", outcome.code == 0, outcome.ending()) or not report:
        return
    found = [(error["call"], error["error"], error["calls"]) for error in errors(report)]
    bench.check("clean-none", not found, f"failures {found}")
    answers = [(answer["call"], answer["error"], answer["calls"]) for answer in report["errors"]["answers"]]
    bench.row("clean-answers", "INFO", f"{answers}")


def failing(bench):
    outcome, folder = bench.traced("failing", bench.script("torch_failures.py"))
    report = bench.report("failing", folder)
    if not bench.check("failing-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return
    said = json.loads(outcome.stdout.strip().splitlines()[-1])
    bench.keep("errors.json", json.dumps(report["errors"], indent=1))

    def at(mark):
        line = said["lines"][mark]
        return [error for error in errors(report) if (error.get("line") or {}).get("line") == line]

    refused = at("too_much")
    sizes = [error["arguments"].get("bytes", 0) for error in refused]
    good = bool(refused) and all(error["code"] == 2 for error in refused) and max(sizes) >= 1 << 46
    bench.check("out-of-memory", good, f"{[(error['call'], error['error'], error['arguments']) for error in refused]}")
    given = at("again")
    # Where the cache was given back in time, PyTorch was not refused at all.
    verdict = "INFO" if not given else "PASS" if sum(error["given_later"] for error in given) else "FAIL"
    bench.row("asked-again", verdict, f"{[(error['call'], error['calls'], error['given_later'], error['frees_before']) for error in given]}")
    launch = at("refused")
    block = [error["arguments"].get("block") for error in launch]
    bench.check("refused-launch", block == [[4096, 1, 1]] and said["failed"]["refused"], f"{launch}")
    others = [(error["call"], error["error"], error["calls"]) for error in errors(report) if error not in refused + given + launch]
    bench.check("no-others", not others, f"{others}")


def run(bench):
    bench.parallel({"clean": lambda: clean(bench), "failing": lambda: failing(bench)}, workers=1)
