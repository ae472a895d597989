"""The parts of scripts/gpu-test and scripts/bench-overhead. Standard library only: it runs on a bare GPU machine."""
