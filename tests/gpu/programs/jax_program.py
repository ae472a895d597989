"""JAX: compiled element-wise work, a reduction, a small product, copies both ways; with `graphs` its steps are graphs (command buffers)."""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Autotuning launches as many kernels as its timings ask for, which no second run repeats.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
if "graphs" in sys.argv:
    os.environ["XLA_FLAGS"] += " --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT --xla_gpu_graph_min_graph_size=1"
import jax
import jax.numpy as jnp
import numpy


@jax.jit
def step(x, w):
    return jnp.tanh(x @ w) * 0.5 + x.mean(axis=0)


x = jnp.asarray(numpy.ones((256, 256), numpy.float32))
w = jnp.asarray(numpy.full((256, 256), 0.01, numpy.float32))
for _ in range(30):
    x = step(x, w)  # GRAPHS step
print("device", jax.devices()[0].platform, "sum", float(x.sum()))
