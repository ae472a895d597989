"""Flax: a small network trained with Optax under jit."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Autotuning launches as many kernels as its timings ask for, which no second run repeats.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.LayerNorm()(x)
        return nn.Dense(16)(x)


if jax.devices()[0].platform != "gpu":
    raise SystemExit("JAX sees no GPU here")
network, optimizer = Network(), optax.adam(1e-3)
key = jax.random.PRNGKey(0)
x = jax.random.normal(key, (64, 32))
y = jnp.tanh(x[:, :16])
parameters = network.init(key, x)
state = optimizer.init(parameters)


@jax.jit
def step(parameters, state, x, y):
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((network.apply(p, x) - y) ** 2))(parameters)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(parameters, updates), state, loss


for _ in range(20):
    parameters, state, loss = step(parameters, state, x, y)
print("device", jax.devices()[0].platform, "loss", f"{float(loss):.3g}")
