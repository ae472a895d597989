"""Programs of every kind, their counts compared with what they did.

nvcc programs say what they did (EXPECT). Frameworks launch kernels of their own, so the count of a bare CUPTI client
in a separate run stands in. Timings do not matter here, so programs run side by side."""

from .. import reports

# What is promised while no kernel takes longer than that.
LAG_MOST_NS = 250_000_000


def verdict(bench, name, report, want, client, note=""):
    """Adds the row that compares one report with `want`; counts that the client shares are the driver's doing, not ours."""
    got = reports.counts(report)
    wrong = reports.differences(want, got)
    if client and wrong:
        as_client = reports.client_counts(client)
        excused = [key for key in reports.DEVICE_KEYS if key in want and got.get(key) != want[key] and got.get(key) == as_client.get(key)]
        if excused:
            note += f" (the bare CUPTI client also counts {', '.join(f'{key}={got[key]}' for key in excused)})"
            wrong = [text for text in wrong if text.split()[0] not in excused]
    if got["dropped"]:
        wrong.append(f"dropped {report.get('dropped')}")
    if got["device_only"]:
        wrong.append(f"device_only {got['device_only']}")
    coverage = report.get("device_time_coverage")
    if coverage is not None and coverage < 0.999:
        wrong.append(f"device_time_coverage {coverage}")
    shown = " ".join(f"{key}={got[key]}" for key in ("launches", "captured_launches", "graph_launches", "kernel_calls", "copies", "memsets"))
    bench.check(name, not wrong, ("; ".join(wrong) + " | " if wrong else "") + shown + note)


def check_program(bench, name, command, env=None, limit_s=120, client_command=None, client_times=1):
    """Runs one program untraced, under the client and under gputrace; compares output, exit code and counts. Returns our report.

    Where the client cannot count all of a program, `client_command` is a part of it that is done `client_times` in all."""
    if None in command:
        bench.row(name, "FAIL", "was not built")
        return
    bare = bench.bare(name, command, limit_s, env)
    if bare.code != 0:
        bench.row(name, "SKIP", f"does not run here untraced: {bare.ending()}: {bare.stderr.strip()[-250:]!r}")
        return
    hand = reports.expected(bare.stdout)
    client_run, client = bench.counted(name, client_command or command, names=hand is None, limit_s=limit_s, env=env)
    if client_run and (client_run.code != 0 or client is None):
        bench.row(f"{name}-client", "INFO", f"no independent count: {client_run.ending()} {client_run.stderr.strip()[-200:]!r}")
        client = None
    if client:
        client = reports.times(client, client_times)
    outcome, folder = bench.traced(name, command, env=env, limit_s=40 + 8 * bare.seconds)
    if outcome.code != 0:
        bench.row(name, "FAIL", f"traced: {outcome.ending()}: {outcome.stderr.strip()[-300:]!r}")
    if outcome.hung or outcome.crashed:
        return
    if outcome.stdout != bare.stdout:
        bench.row(f"{name}-output", "FAIL", f"stdout differs: {outcome.stdout[-200:]!r} for {bare.stdout[-200:]!r}")
    missing = bench.outputs(name, folder)
    if missing:
        bench.row(f"{name}-files", "FAIL", f"missing: {', '.join(missing)}")
    report = bench.report(name, folder)
    if not report:
        return
    if hand is None and client is None:
        bench.row(name, "SKIP", "neither a hand count nor a client's count")
        return
    want = hand or reports.client_counts(client)
    verdict(bench, name, report, want, client if hand else None, f" [{bare.seconds:.1f}s bare, {outcome.seconds:.1f}s traced]")
    if client:
        compare_copies(bench, name, report, client)
    if hand is None:
        compare_by_name(bench, name, report, client)
    return report


def compare_copies(bench, name, report, client):
    """Calls and bytes by direction against the client's."""
    want = {direction: [calls, size] for direction, (calls, size, _) in client["copies"].items()}
    got = reports.transfers(report)
    if want or got:
        bench.check(f"{name}-copies", want == got, got if want == got else f"{got}, the client {want}")


def compare_by_name(bench, name, report, client):
    """Frameworks: the same kernels by name, not only as many."""
    want = {}
    for kernel, (calls, _) in client["names"].items():
        want[bench.demangle(kernel)] = want.get(bench.demangle(kernel), 0) + calls
    level, lines = reports.compare_names(want, reports.kernel_calls(report, bench.demangle))
    bench.keep(f"{name}-names.txt", "\n".join(lines))
    bench.check(f"{name}-names", level is not None, f"{len(want)} kernel names equal at level: {level}" + ("" if level == "exact" else f"; {lines[:2]}"))


def deep_queue(bench):
    """Device times of a long queue come while it is worked off."""
    report = check_program(bench, "deep-queue", [bench.programs["deep_queue"]])
    lag_ns = report and report["cost"]["record_lag_max_ns"]
    bench.check("deep-queue-lag", lag_ns and lag_ns <= LAG_MOST_NS, f"device records came at most {(lag_ns or 0) / 1e6:.0f} ms after their end, in queues of a second")


def run(bench):
    built = bench.programs
    jobs = {
        "vadd-static": [built["vadd"]],
        "vadd-shared": [built["vadd_shared"]],
        "vadd-per-thread": [built["vadd_ptds"]],
        "threads-8": [built["threads"]],
        # As many as CUDA 13 takes buffers: one a thread.
        "threads-200": [built["threads"], "200"],
        "threads-8-shared-per-thread": [built["threads_ptds"]],
        "streams-100": [built["streams"]],
        "graph-captured": [built["graph_capture"]],
        "graph-explicit": [built["graph_nodes"]],
        "driver-linked": [built["driver_link"], built["driver_kernels"]],
        "driver-dlsym": [built["driver_dlsym"], built["driver_kernels"]],
        "driver-getproc": [built["driver_getproc"], built["driver_kernels"]],
        "driver-per-thread": [built["driver_ptsz"], built["driver_kernels"]],
        "cupy": bench.script("cupy_program.py"),
        "jax": bench.script("jax_program.py"),
        "triton": bench.script("triton_program.py"),
        "numba": bench.script("numba_program.py"),
    }
    if bench.quick:
        jobs = {name: jobs[name] for name in ("vadd-shared", "threads-8", "graph-captured", "driver-dlsym", "driver-per-thread", "triton")}
    # The slow ones first, so that the section ends when they do.
    order = sorted(jobs, key=lambda name: name not in ("jax", "cupy", "triton", "numba", "graph-captured", "graph-explicit"))
    bench.parallel({name: (lambda name=name: check_program(bench, name, jobs[name])) for name in order}, workers=8)
    deep_queue(bench)
