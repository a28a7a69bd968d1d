"""One training step of an MLP in JAX: forward, backward and Adam in one jitted function whose state is donated.

The step is that of `brrr train mlp`: square linear layers with gelu (tanh) between them, mean squared error, Adam with
averages in the parameters' dtype. Prints one JSON document as torch_steps.py does, with the mode "jit".

    jax_steps.py [--device cuda|cpu] [--sizes tiny,small,medium,wide,deep] [--precisions tf32,bf16,mixed]

`mixed` has parameters in f32 and computes the layers in bf16, as examples/mixed_precision.cpp does. On the CPU the step is in f32, and has as many threads as the process may use processors.
"""

import argparse
import functools
import json
import os
import sys
import time

from sizes import CPU_SIZES, SIZES

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
parser.add_argument("--sizes")
parser.add_argument("--precisions", default="tf32,bf16", help="on CUDA")
options = parser.parse_args()
ON_GPU = options.device == "cuda"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if not ON_GPU:
    os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
    import jax.numpy as jnp
except ImportError as problem:
    sys.exit(f"SKIPPED: {problem}")
if ON_GPU and jax.default_backend() != "gpu":
    sys.exit("SKIPPED: JAX finds no GPU")

TYPES = {  # of the parameters, and of the layers
    "f32": (jnp.float32, jnp.float32), "tf32": (jnp.float32, jnp.float32), "bf16": (jnp.bfloat16, jnp.bfloat16),
    "mixed": (jnp.float32, jnp.bfloat16),
}
RATE, MEAN_DECAY, SQUARE_DECAY, EPS = 1e-3, 0.9, 0.999, 1e-8


def loss_of(layers, inputs, targets, dtype):
    hidden = inputs.astype(dtype)
    for i, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight.astype(dtype) + bias.astype(dtype)
        if i + 1 < len(layers):
            hidden = jax.nn.gelu(hidden, approximate=True)
    return jnp.mean(jnp.square(hidden.astype(targets.dtype) - targets))


def step(state, inputs, targets, dtype):
    layers, means, squares, count = state
    loss, gradients = jax.value_and_grad(loss_of)(layers, inputs, targets, dtype)
    count = count + 1
    of_mean, of_square = 1 - MEAN_DECAY**count, 1 - SQUARE_DECAY**count

    def average(decay, old, new):
        return (decay * old + (1 - decay) * new).astype(old.dtype)

    def updated(parameter, mean, square):
        change = RATE * (mean / of_mean) / (jnp.sqrt(square / of_square) + EPS)
        return (parameter - change).astype(parameter.dtype)

    means = jax.tree.map(lambda m, g: average(MEAN_DECAY, m, g), means, gradients)
    squares = jax.tree.map(lambda v, g: average(SQUARE_DECAY, v, g * g), squares, gradients)
    return (jax.tree.map(updated, layers, means, squares), means, squares, count), loss


def microseconds(batch, width, depth, dtype, of_layers):
    keys = jax.random.split(jax.random.PRNGKey(0), depth + 2)
    layers = [(jax.random.normal(key, (width, width), dtype) * width**-0.5, jnp.zeros(width, dtype)) for key in keys[2:]]
    zeros = jax.tree.map(jnp.zeros_like, layers)
    state = (layers, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.float32))
    inputs, targets = (jax.random.normal(key, (batch, width), dtype) for key in keys[:2])
    run = jax.jit(functools.partial(step, dtype=of_layers), donate_argnums=0)

    def window(calls, state):
        start = time.perf_counter()
        for _ in range(calls):
            state, _ = run(state, inputs, targets)
        jax.block_until_ready(state)
        return (time.perf_counter() - start) / calls, state

    _, state = window(5, state)
    each, state = window(5, state)
    calls = max(1, round(0.02 / each))
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.5:  # warm
        _, state = window(calls, state)
    times = []
    for _ in range(max(5, min(60, int(0.5 / (each * calls))))):
        took, state = window(calls, state)
        times.append(took)
    return sorted(times)[len(times) // 2] * 1e6


results = []
sizes = options.sizes or ",".join(SIZES if ON_GPU else CPU_SIZES)
with jax.default_matmul_precision("tensorfloat32" if ON_GPU else "float32"):
    for precision in options.precisions.split(",") if ON_GPU else ["f32"]:
        for size in sizes.split(","):
            value = microseconds(*SIZES[size], *TYPES[precision])
            results.append({"name": f"steps/{size} {precision} jit", "device": options.device, "value": value, "unit": "us"})
            print(f"{size} {precision} jit: {value:.1f} us", file=sys.stderr, flush=True)
machine = {"jax": jax.__version__} | ({"gpu": jax.devices()[0].device_kind} if ON_GPU else {})
json.dump({"results": results, "machine": machine}, sys.stdout, indent=2)
print()
