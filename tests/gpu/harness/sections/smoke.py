"""The machine, and the first program: does anything work at all?"""

from .. import machine, process, reports
from ..build import GPU_TESTS
from .programs import verdict

GET_VERSION = """
import ctypes, sys
ctypes.CDLL("libcuda.so.1").cuInit(0)
version = ctypes.c_uint32()
code = ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version))
print(version.value if code == 0 else f"error {code}")
"""


def cupti_versions(bench):
    """{path: what cuptiGetVersion says there}; each library in a process of its own, since some crash."""
    paths = machine.same_files_once(machine.find_libraries("libcupti.so") + carried_cupti())
    found = {}

    def ask(path, number):
        outcome = process.run([bench.python, "-c", GET_VERSION, path], bench.log(f"cupti-version-{number}"), bench.limit(30))
        found[path] = outcome.stdout.strip() if outcome.code == 0 else f"{outcome.ending()} {outcome.stderr.strip()[-100:]}"

    bench.parallel({f"cupti-version-{i}": (lambda path=path, i=i: ask(path, i)) for i, path in enumerate(paths)}, workers=8)
    return dict(sorted(found.items()))


def carried_cupti():
    """The libcupti files that scripts/pack-gpu --wheels put beside the binary."""
    return [str(path) for path in (GPU_TESTS.parent.parent / ".carry" / "cupti").rglob("libcupti.so*")]


def show(title, text, lines):
    print(f"--- {title}")
    for line in text.splitlines()[:lines]:
        print(line[:180])


def run(bench):
    for name, text in bench.builder.failures.items():
        bench.keep(f"build-{name}.txt", text)
        bench.row(f"build-{name}", "FAIL", text[-500:])
    facts = machine.facts()
    bench.keep("machine.txt", "\n".join([*facts, machine.output_of(["nvidia-smi"]), machine.output_of(["nvidia-smi", "topo", "-m"]), machine.output_of(["ldconfig", "-p"])]))
    for fact in facts:
        bench.row("machine", "INFO", fact)

    def libraries():
        versions = cupti_versions(bench)
        bench.keep("cupti.txt", "\n".join(f"{version} {path}" for path, version in versions.items()))
        bench.row("cupti-libraries", "INFO", "; ".join(f"{path.replace('/opt/', '')}={version}" for path, version in versions.items()))

    def getproc():
        outcome = process.run(bench.script("getproc_table.py", bench.log("getproc-table.txt")), bench.log("getproc"), bench.limit(90))
        found = [line for line in outcome.stdout.splitlines() if line.startswith("GETPROC")]
        bench.row("getproc", "INFO", found[0] if found else f"{outcome.ending()}: {outcome.stderr[-300:]}")

    def doctor():
        outcome = process.run([bench.gputrace, "doctor"], bench.log("doctor"), bench.limit(60))
        bench.check("doctor", outcome.code == 0, outcome.ending())
        show("gputrace doctor", outcome.stdout + outcome.stderr, 25)

    bench.parallel({"cupti-libraries": libraries, "getproc": getproc, "doctor": doctor})

    vadd = bench.programs.get("vadd")
    if not vadd:
        bench.row("vadd", "FAIL", "was not built")
        return
    bare = bench.bare("vadd", [vadd])
    bench.check("vadd-untraced", bare.code == 0, f"{bare.ending()} {bare.stderr[-200:]}")
    client_run, client = bench.counted("vadd", [vadd])
    bench.row("cupti-client", "INFO", reports.client_counts(client) if client else f"no totals: {client_run.ending() + client_run.stderr[-200:] if client_run else 'not built'}")
    for way, start in (("run", bench.traced), ("preload", bench.preloaded)):
        outcome, folder = start(f"vadd-{way}", [vadd])
        bench.check(f"{way}-exit-0", outcome.code == 0, f"{outcome.ending()} in {outcome.seconds:.2f}s (untraced {bare.seconds:.2f}s)")
        bench.check(f"{way}-stdout", outcome.stdout == bare.stdout, outcome.stdout[-200:] if outcome.stdout != bare.stdout else "as untraced")
        missing = bench.outputs(f"vadd-{way}", folder)
        bench.check(f"{way}-files", not missing, f"missing {missing}" if missing else "all four written")
        show(f"{way}: stderr", outcome.stderr, 60 if way == "run" else 15)
        for folded in sorted(folder.rglob("flame.folded"))[:1] if folder.exists() else []:
            show(f"{way}: flame.folded", folded.read_text(errors="replace"), 10)
        report = bench.report(f"vadd-{way}", folder)
        if report:
            verdict(bench, f"{way}-counts", report, reports.expected(bare.stdout) or {"launches": 10}, client)
            bench.row(f"{way}-device-time", "INFO", f"kernel_ns={reports.kernel_ns(report)} client={client and client.get('kernel_ns')} coverage={report.get('device_time_coverage')} simulated={report.get('simulated')}")
        outcome, _ = start(f"vadd-{way}-7", [vadd, "7"])
        bench.check(f"{way}-exit-7", outcome.code == 7, outcome.ending())
    outcome, folder = bench.traced("no-cuda", ["/bin/sh", "-c", "echo hello; exit 5"], limit_s=30)
    bench.check("no-cuda", outcome.code == 5 and outcome.stdout == "hello\n", f"{outcome.ending()} {outcome.stdout!r}")
    outcome, _ = bench.preloaded("no-cuda-preload", ["/bin/sh", "-c", "echo hello; exit 5"], limit_s=30)
    bench.check("no-cuda-preload", outcome.code == 5 and outcome.stdout == "hello\n" and not outcome.stderr, f"{outcome.ending()} {outcome.stdout!r} {outcome.stderr!r}")
