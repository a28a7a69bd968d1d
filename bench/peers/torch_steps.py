"""One training step of an MLP in PyTorch: eager, the whole step as one CUDA graph of its eager ops, and as one CUDA
graph with forward and backward compiled (torch.compile, max-autotune).

The step is that of `brrr train mlp`: square linear layers with gelu (tanh) between them, mean squared error, Adam.
Prints one JSON document, {"results": [{"name", "device", "value", "unit"}], "machine": {...}}; the names are
"steps/SIZE PRECISION MODE".

    torch_steps.py [--device cuda|cpu] [--modes eager,graph,compiled] [--sizes tiny,small,medium,wide,deep]
                   [--precisions tf32,bf16,mixed]

`mixed` has parameters in f32 and computes the layers in bf16 (autocast), as examples/mixed_precision.cpp does. On the CPU
there are no graphs, the step is in f32, and has as many threads as the process may use processors.
"""

import argparse
import json
import os
import sys

from sizes import CPU_SIZES, SIZES

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
parser.add_argument("--modes")
parser.add_argument("--sizes")
parser.add_argument("--precisions", default="tf32,bf16", help="on CUDA")
options = parser.parse_args()
ON_GPU = options.device == "cuda"
try:
    import torch
except ImportError as problem:
    sys.exit(f"SKIPPED: {problem}")
from torch_timing import captured, seconds_per_call  # noqa: E402

if ON_GPU and not torch.cuda.is_available():
    sys.exit("SKIPPED: PyTorch finds no GPU")
if not ON_GPU:
    torch.set_num_threads(len(os.sched_getaffinity(0)))

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "mixed": torch.float32}


class Training:
    def __init__(self, batch, width, layers, precision, compiled):
        here = {"device": options.device, "dtype": DTYPES[precision]}
        parts = [torch.nn.Linear(width, width, **here)]
        for _ in range(layers - 1):
            parts += [torch.nn.GELU(approximate="tanh"), torch.nn.Linear(width, width, **here)]
        self.model = torch.nn.Sequential(*parts)
        self.inputs, self.targets = torch.randn(2, batch, width, **here)
        # The fastest that PyTorch has, and one that a graph may hold.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True, capturable=ON_GPU)

        def loss_of(inputs, targets):
            with torch.autocast(options.device, torch.bfloat16, enabled=precision == "mixed"):
                outputs = self.model(inputs)
            return torch.nn.functional.mse_loss(outputs.to(targets.dtype), targets)

        # The graph of the whole step is captured below: the compiler must not make its own.
        mode = "max-autotune-no-cudagraphs" if ON_GPU else "max-autotune"
        self.loss_of = torch.compile(loss_of, mode=mode) if compiled else loss_of

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.inputs, self.targets).backward()
        self.optimizer.step()


results = []
sizes = options.sizes or ",".join(SIZES if ON_GPU else CPU_SIZES)
modes = options.modes or ("eager,graph" if ON_GPU else "eager,compiled")
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
for precision in options.precisions.split(",") if ON_GPU else ["f32"]:
    for size in sizes.split(","):
        for mode in modes.split(","):
            torch._dynamo.reset()
            training = Training(*SIZES[size], precision, mode == "compiled")
            in_graph = ON_GPU and mode != "eager"
            value = seconds_per_call(captured(training.step).replay if in_graph else training.step) * 1e6
            results.append({"name": f"steps/{size} {precision} {mode}", "device": options.device, "value": value, "unit": "us"})
            print(f"{size} {precision} {mode}: {value:.1f} us", file=sys.stderr, flush=True)
            del training
            if ON_GPU:
                torch.cuda.empty_cache()

machine = {"torch": torch.__version__}
if ON_GPU:
    machine |= {"cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}
json.dump({"results": results, "machine": machine}, sys.stdout, indent=2)
print()
