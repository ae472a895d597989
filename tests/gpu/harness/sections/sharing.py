"""Beside other CUPTI users (issue 3, section 4): profilers inside a traced process, and tools around one."""

from .. import shared_cupti, shared_tools, shared_torch


def run(bench):
    bench.parallel(shared_cupti.jobs(bench), workers=6)
    shared_torch.run(bench)
    bench.parallel(shared_tools.jobs(bench), workers=3)
