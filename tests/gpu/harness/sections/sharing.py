"""Beside other CUPTI users: profilers inside a traced process, and tools around one."""

from .. import shared_cupti, shared_tools, shared_torch


def run(bench):
    jobs = shared_cupti.jobs(bench)
    if bench.quick:
        jobs = {name: job for name, job in jobs.items() if name in ("cupti-callbacks-later", "cupti-activity-first", "cupti-activity-later", "cupti-old-torch")}
    bench.parallel(jobs, workers=6)
    shared_torch.run(bench)
    bench.parallel(shared_tools.jobs(bench), workers=3)
