"""Writes nn.safetensors: outputs and gradients of PyTorch's layers in f64, for tests/nn/test_golden.cpp.

Needs torch alone. Run as: python3 make_nn_golden.py
No input is drawn: every tensor is pattern(shape, phase), which the test computes too. The phase of a parameter is
that of its name. Results are CASE/output and CASE/grad/NAME, for the gradient pattern(output's shape, 0.3).
"""

import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
out = {}


def pattern(shape, phase):
    count = math.prod(shape)
    return torch.tensor([0.5 * math.sin(phase + 0.9 * i) for i in range(count)]).reshape(shape)


def phase_of(name):
    return sum(name.encode()) % 100 * 0.1


def parameters(shapes):
    return {name: pattern(shape, phase_of(name)).requires_grad_() for name, shape in shapes.items()}


def put(name, tensor):
    assert name not in out, name
    assert tensor.dtype == torch.float64, name
    out[name] = tensor.detach().contiguous()


def case(name, function, leaves):
    """function(leaves) is the output; leaves that need no gradient are left out of the results."""
    y = function(leaves)
    put(f"{name}/output", y)
    wanted = {k: v for k, v in leaves.items() if v.requires_grad}
    gradients = torch.autograd.grad(y, list(wanted.values()), pattern(tuple(y.shape), 0.3))
    for k, g in zip(wanted, gradients):
        put(f"{name}/grad/{k}", g)


def under(prefix, p):
    return {k[len(prefix):]: v for k, v in p.items() if k.startswith(prefix)}


def linear_shapes(prefix, n_in, n_out, bias=True):
    shapes = {f"{prefix}weight": (n_out, n_in)}
    if bias:
        shapes[f"{prefix}bias"] = (n_out,)
    return shapes


def linear(p, x):
    return F.linear(x, p["weight"], p.get("bias"))


def layer_norm(p, x):
    return F.layer_norm(x, (x.shape[-1],), p["weight"], p["bias"], 1e-5)


def rms_norm(p, x, eps=1e-6):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * p["weight"]


def mlp(p, x):
    count = len({k.split(".")[1] for k in p})
    for i in range(count):
        x = linear(under(f"layers.{i}.", p), x)
        if i + 1 < count:
            x = F.gelu(x, approximate="tanh")
    return x


def attention(p, x, heads):
    b, s, d = x.shape
    q, k, v = (t.view(b, s, heads, d // heads).transpose(1, 2) for t in linear(under("qkv.", p), x).split(d, -1))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(under("out.", p), a.transpose(1, 2).reshape(b, s, d))


def block(p, x, heads):
    x = x + attention(under("attention.", p), layer_norm(under("norm1.", p), x), heads)
    return x + mlp(under("mlp.", p), layer_norm(under("norm2.", p), x))


def transformer(p, tokens, heads, layers):
    h = F.embedding(tokens, p["tokens.weight"]) + p["places.weight"][: tokens.shape[1]]
    for i in range(layers):
        h = block(under(f"blocks.{i}.", p), h, heads)
    return linear(under("head.", p), layer_norm(under("norm.", p), h))


def attention_shapes(prefix, d):
    return linear_shapes(f"{prefix}qkv.", d, 3 * d) | linear_shapes(f"{prefix}out.", d, d)


def norm_shapes(prefix, d):
    return {f"{prefix}weight": (d,), f"{prefix}bias": (d,)}


def block_shapes(prefix, d):
    return (
        norm_shapes(f"{prefix}norm1.", d)
        | attention_shapes(f"{prefix}attention.", d)
        | norm_shapes(f"{prefix}norm2.", d)
        | linear_shapes(f"{prefix}mlp.layers.0.", d, 4 * d)
        | linear_shapes(f"{prefix}mlp.layers.1.", 4 * d, d)
    )


def module(name, function, shapes, input_shape):
    leaves = {"input": pattern(input_shape, 0.1).requires_grad_()} | parameters(shapes)
    case(name, lambda p: function({k: v for k, v in p.items() if k != "input"}, p["input"]), leaves)


module("linear", linear, linear_shapes("", 3, 4), (5, 3))
module("linear_without_bias", linear, linear_shapes("", 3, 4, bias=False), (2, 5, 3))
module(
    "mlp", mlp,
    linear_shapes("layers.0.", 3, 5) | linear_shapes("layers.1.", 5, 4) | linear_shapes("layers.2.", 4, 2), (6, 3),
)  # fmt: skip
module("layer_norm", layer_norm, norm_shapes("", 6), (2, 3, 6))
module("rms_norm", rms_norm, {"weight": (6,)}, (2, 3, 6))
module("attention", lambda p, x: attention(p, x, 2), attention_shapes("", 8), (2, 5, 8))
module("block", lambda p, x: block(p, x, 2), block_shapes("", 8), (2, 5, 8))

index = torch.tensor([[0, 6, 2], [2, 2, 5]])
case("embedding", lambda p: F.embedding(index, p["weight"]), parameters({"weight": (7, 4)}))

tokens = torch.tensor([[0, 6, 2, 3], [2, 2, 5, 1]])
shapes = {"tokens.weight": (7, 8), "places.weight": (5, 8)}
for layer in range(2):
    shapes |= block_shapes(f"blocks.{layer}.", 8)
shapes |= norm_shapes("norm.", 8) | linear_shapes("head.", 8, 7, bias=False)
case("transformer", lambda p: transformer(p, tokens, 2, 2), parameters(shapes))

# Attention as a function: a mask that hides some keys, a scale, more keys than queries.
mask = torch.tensor([[True, False, True, True, False], [False, True, True, False, True], [True] * 5])
qkv = {"query": pattern((2, 3, 4), 0.1), "key": pattern((2, 5, 4), 0.2), "value": pattern((2, 5, 6), 0.4)}
qkv = {k: v.requires_grad_() for k, v in qkv.items()}
case("sdpa", lambda p: F.scaled_dot_product_attention(p["query"], p["key"], p["value"]), qkv)
case(
    "sdpa_masked",
    lambda p: F.scaled_dot_product_attention(p["query"], p["key"], p["value"], attn_mask=mask, scale=0.7),
    qkv,
)

x = {"input": (4 * pattern((4, 5), 0.1)).requires_grad_()}
likeness, chances = pattern((4, 5), 1.1), pattern((4, 5), 1.1) + 0.5
classes = torch.tensor([4, 0, 2, 2])
for reduction in ("mean", "sum", "none"):
    case(f"mse/{reduction}", lambda p: F.mse_loss(p["input"], likeness, reduction=reduction), x)
    case(f"cross_entropy/{reduction}", lambda p: F.cross_entropy(p["input"], classes, reduction=reduction), x)
    case(
        f"cross_entropy_smoothed/{reduction}",
        lambda p: F.cross_entropy(p["input"], classes, reduction=reduction, label_smoothing=0.2),
        x,
    )
    case(
        f"bce/{reduction}",
        lambda p: F.binary_cross_entropy_with_logits(p["input"], chances, reduction=reduction),
        x,
    )


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        values = tensor.flatten().tolist()
        bytes_of = struct.pack(f"<{len(values)}d", *values)
        header[name] = {
            "dtype": "F64",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(bytes_of)],
        }
        data += bytes_of
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


path = pathlib.Path(__file__).resolve().parent / "nn.safetensors"
write_safetensors(path, out, {"made_by": f"torch {torch.__version__}"})
for name in out:
    if name.endswith("/output"):
        print(f"{name[:-7]:32} output {str(tuple(out[name].shape)):12} sum {out[name].sum().item():+.12f}")
print(f"{len(out)} tensors, {path.stat().st_size} bytes in {path}")
