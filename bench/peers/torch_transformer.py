"""One training step of a transformer in PyTorch, bf16, with PyTorch's fused attention: forward and backward compiled
(torch.compile), the whole step one CUDA graph.

The step is that of `brrr train transformer`: causal pre-norm blocks, mean squared error, Adam. Prints one JSON document
as torch_steps.py does; the names are "transformer/BATCHxSEQxWIDTHxHEADSxLAYERS bf16 ATTENTION".

    torch_transformer.py --shape 8x512x512x8x4 [--attention flash,cudnn] [--mode max-autotune|default]
"""

import argparse
import json
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--shape", required=True)
parser.add_argument("--attention", default="flash,cudnn")
parser.add_argument("--mode", choices=["max-autotune", "default"], default="max-autotune")
options = parser.parse_args()
try:
    import torch
except ImportError as problem:
    sys.exit(f"SKIPPED: {problem}")
if not torch.cuda.is_available():
    sys.exit("SKIPPED: PyTorch finds no GPU")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_timing import captured, seconds_per_call  # noqa: E402

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
HERE = {"device": "cuda", "dtype": torch.bfloat16}


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, **HERE) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, **HERE), torch.nn.Linear(width, width, **HERE)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width, **HERE), torch.nn.GELU(approximate="tanh"),
                                       torch.nn.Linear(4 * width, width, **HERE))

    def forward(self, x):
        batch, rows, width = x.shape
        parts = [part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
                 for part in self.qkv(self.norm1(x)).split(width, -1)]
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.norm2(x))


def microseconds(batch, rows, width, heads, layers):
    model = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
    inputs, targets = torch.randn(2, batch, rows, width, **HERE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=True)
    mode = "max-autotune-no-cudagraphs" if options.mode == "max-autotune" else None
    loss_of = torch.compile(lambda: torch.nn.functional.mse_loss(model(inputs), targets), mode=mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()

    return seconds_per_call(captured(step).replay) * 1e6


torch.manual_seed(0)
results = []
for attention in options.attention.split(","):
    torch._dynamo.reset()
    with sdpa_kernel(BACKENDS[attention]):
        value = microseconds(*map(int, options.shape.split("x")))
    results.append({"name": f"transformer/{options.shape} bf16 {attention}", "device": "cuda", "value": value, "unit": "us"})
    print(f"{options.shape} bf16 {attention}: {value:.1f} us", file=sys.stderr, flush=True)
    torch.cuda.empty_cache()
machine = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}
json.dump({"results": results, "machine": machine}, sys.stdout, indent=2)
print()
