"""One module a section of scripts/gpu-test; each has `run(bench)`, which adds rows to the bench's table."""
