"""Writes ops.safetensors: what PyTorch computes on the CPU, for tests/ops/test_golden.cpp.

Needs torch and safetensors. Run as: python3 make_ops.py
Inputs are named in/..., results by op, variant and dtype; the test finds its calls by those names.
"""

import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FLOATS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
INTS = {"i32": torch.int32, "i64": torch.int64}
NUMBERS = FLOATS | INTS
INTEGRAL = INTS | {"bool": torch.bool}
ALL = NUMBERS | {"bool": torch.bool}

torch.manual_seed(0)
torch.backends.mkldnn.enabled = False  # it has no backward of gelu for such shapes
torch.set_num_threads(1)
out = {}


def put(name, tensor):
    assert name not in out, name
    out[name] = tensor.detach().contiguous().clone()


def inputs(name, dtype):
    """Operands a [6, 8], b [8], c [6, 1], p (not negative) and r [5, 7] without special values."""
    g = torch.Generator().manual_seed(1)
    if dtype == torch.bool:
        draw = lambda *shape: torch.rand(shape, generator=g) < 0.5
        made = {"a": draw(6, 8), "b": draw(8), "c": draw(6, 1), "r": draw(5, 7)}
    elif dtype in INTS.values():
        draw = lambda *shape: torch.randint(-6, 7, shape, generator=g).to(dtype)
        b = draw(8)
        b[b == 0] = 3
        made = {"a": draw(6, 8), "b": b, "c": draw(6, 1), "r": draw(5, 7) // 2}
        made["p"] = made["b"].abs()
    else:
        draw = lambda *shape: (torch.rand(shape, generator=g) * 8 - 4).to(dtype)
        a = draw(6, 8)
        a[0, :7] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.5, 2.5])
        a[1, :4] = torch.tensor([1.5, -0.5, -2.5, 1.0])
        b = draw(8)
        b[2] = 0.5
        made = {"a": a, "b": b, "c": draw(6, 1), "r": draw(5, 7) / 2}
        made["p"] = made["b"]
    for key, value in made.items():
        put(f"in/{key}/{name}", value)
    return made


IN = {name: inputs(name, dtype) for name, dtype in ALL.items()}

UNARY = {
    "neg": (torch.neg, NUMBERS), "abs": (torch.abs, NUMBERS), "sign": (torch.sign, NUMBERS),
    "exp": (torch.exp, FLOATS), "expm1": (torch.expm1, FLOATS), "log": (torch.log, FLOATS),
    "log1p": (torch.log1p, FLOATS), "sqrt": (torch.sqrt, FLOATS), "rsqrt": (torch.rsqrt, FLOATS),
    "square": (torch.square, NUMBERS), "reciprocal": (torch.reciprocal, FLOATS), "sin": (torch.sin, FLOATS),
    "cos": (torch.cos, FLOATS), "tan": (torch.tan, FLOATS), "tanh": (torch.tanh, FLOATS),
    "sigmoid": (torch.sigmoid, FLOATS), "relu": (torch.relu, NUMBERS), "gelu": (F.gelu, FLOATS),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), FLOATS), "silu": (F.silu, FLOATS),
    "log2": (torch.log2, FLOATS), "sinh": (torch.sinh, FLOATS), "cosh": (torch.cosh, FLOATS),
    "asin": (torch.asin, FLOATS), "acos": (torch.acos, FLOATS), "atan": (torch.atan, FLOATS),
    "softplus": (F.softplus, FLOATS), "erf": (torch.erf, FLOATS), "floor": (torch.floor, NUMBERS),
    "ceil": (torch.ceil, NUMBERS), "round": (torch.round, NUMBERS), "trunc": (torch.trunc, NUMBERS),
    "isnan": (torch.isnan, ALL), "isinf": (torch.isinf, ALL), "isfinite": (torch.isfinite, ALL),
    "logical_not": (torch.logical_not, ALL), "bitwise_not": (torch.bitwise_not, INTEGRAL),
}  # fmt: skip
BINARY = {
    "add": (torch.add, ALL), "sub": (torch.sub, NUMBERS), "mul": (torch.mul, ALL), "div": (torch.div, FLOATS),
    "pow": (torch.pow, NUMBERS), "maximum": (torch.maximum, ALL), "minimum": (torch.minimum, ALL),
    "remainder": (torch.remainder, NUMBERS), "eq": (torch.eq, ALL), "ne": (torch.ne, ALL), "lt": (torch.lt, ALL),
    "le": (torch.le, ALL), "gt": (torch.gt, ALL), "ge": (torch.ge, ALL), "logical_and": (torch.logical_and, ALL),
    "logical_or": (torch.logical_or, ALL), "logical_xor": (torch.logical_xor, ALL),
    "bitwise_and": (torch.bitwise_and, INTEGRAL), "bitwise_or": (torch.bitwise_or, INTEGRAL),
    "bitwise_xor": (torch.bitwise_xor, INTEGRAL), "atan2": (torch.atan2, FLOATS),
    "tanh_gradient": (torch.ops.aten.tanh_backward, FLOATS), "sigmoid_gradient": (torch.ops.aten.sigmoid_backward, FLOATS),
    "relu_gradient": (lambda g, y: torch.ops.aten.threshold_backward(g, y, 0), FLOATS),
    "gelu_gradient": (lambda g, x: torch.ops.aten.gelu_backward(g, x), FLOATS),
    "gelu_tanh_gradient": (lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"), FLOATS),
    "silu_gradient": (torch.ops.aten.silu_backward, FLOATS),
}  # fmt: skip
TERNARY = {
    "where": (torch.where, ALL), "clamp": (torch.clamp, NUMBERS), "lerp": (torch.lerp, FLOATS),
    "addcmul": (torch.addcmul, NUMBERS), "addcdiv": (torch.addcdiv, FLOATS),
}  # fmt: skip

for op, (f, types) in UNARY.items():
    for t in types:
        put(f"pointwise/{op}/{t}", f(IN[t]["a"]))
    if types is FLOATS and op not in ("gelu", "gelu_tanh", "silu", "softplus"):  # PyTorch has no integer ones
        put(f"pointwise/{op}/i64", f(IN["i64"]["a"]))
for op, (f, types) in BINARY.items():
    for t in types:
        put(f"pointwise/{op}/{t}", f(IN[t]["a"], IN[t]["p" if op == "pow" else "b"]))
put("pointwise/div/i64", torch.div(IN["i64"]["a"], IN["i64"]["b"]))
for op, (f, types) in TERNARY.items():
    for t in types:
        put(f"pointwise/{op}/{t}", f(IN["bool" if op == "where" else t]["a"], IN[t]["b"], IN[t]["c"]))

REDUCTIONS = {
    "sum": (torch.sum, ALL), "mean": (torch.mean, FLOATS), "max": (torch.amax, ALL), "min": (torch.amin, ALL),
    "any": (torch.any, ALL), "all": (torch.all, ALL), "norm": (torch.linalg.vector_norm, FLOATS),
}  # fmt: skip
for op, (f, types) in REDUCTIONS.items():
    for t in types:
        r = IN[t]["r"]
        put(f"reduce/{op}/{t}", f(r))
        put(f"reduce/{op}:0/{t}", f(r, dim=0))
        put(f"reduce/{op}:1k/{t}", f(r, dim=1, keepdim=True))
for t in ALL:
    r = IN[t]["r"]
    put(f"reduce/prod/{t}", torch.prod(r))
    put(f"reduce/prod:0/{t}", torch.prod(r, dim=0))
    put(f"reduce/prod:1k/{t}", torch.prod(r, dim=1, keepdim=True))
    put(f"scan/cumsum:1/{t}", torch.cumsum(r, 1))
for t in NUMBERS:
    r, special = IN[t]["r"], IN[t]["a"]
    for op, f in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
        # Ties are not PyTorch's to decide on: i32 and i64 are made distinct.
        distinct = r if t in FLOATS else torch.arange(35).reshape(5, 7).to(r.dtype) * 11 % 35
        put(f"arg/{op}:1/{t}", f(distinct, dim=1))
        put(f"arg/{op}/{t}", f(special if t in FLOATS else distinct))

for t in FLOATS:
    r, a = IN[t]["r"], IN[t]["a"][2:]
    w, b = IN[t]["b"][:7], IN[t]["p"][1:]
    put(f"composite/var/{t}", torch.var(r))
    put(f"composite/var:1,0/{t}", torch.var(r, dim=1, correction=0))
    put(f"composite/logsumexp:0/{t}", torch.logsumexp(r, 0))
    put(f"composite/softmax:1/{t}", torch.softmax(r, 1))
    put(f"composite/softmax:0/{t}", torch.softmax(r, 0))
    put(f"composite/log_softmax:1/{t}", torch.log_softmax(r, 1))
    put(f"composite/layer_norm/{t}", F.layer_norm(r, (7,), w, b))
    put(f"composite/layer_norm:2/{t}", F.layer_norm(r, (5, 7)))
    put(f"composite/rms_norm/{t}", F.rms_norm(r, (7,), w, 1e-6))
    put(f"matmul/2d/{t}", r @ a.T[:7])
    put(f"matmul/dot/{t}", w @ b)
    put(f"matmul/row/{t}", w @ r.T)
    put(f"matmul/column/{t}", r @ w)
    put(f"matmul/batch/{t}", torch.stack([r, r + 1]) @ torch.stack([r.T, r.T * 2]))
    put(f"matmul/broadcast/{t}", torch.stack([r, r + 1]) @ r.T)
    put(f"matmul/linear/{t}", F.linear(r, r + 1, w[:5]))

index = torch.tensor([[0, 4, 2, 2, 1, 0, 3], [1, 1, 0, 3, 4, 4, 2]])
rows = torch.tensor([3, 0, 3, 4])
put("in/index", index)
put("in/rows", rows)
for t in ALL:
    r = IN[t]["r"]
    put(f"index/gather:0/{t}", torch.gather(r, 0, index))
    put(f"index/select:0/{t}", torch.index_select(r, 0, rows))
    put(f"index/select:1/{t}", torch.index_select(r, 1, rows))
    put(f"index/embedding/{t}", r[index])
    put(f"index/nonzero/{t}", torch.nonzero(r))
    put(f"index/tril:1/{t}", torch.tril(r, 1))
    put(f"index/triu:-1/{t}", torch.triu(r, -1))
    put(f"join/cat:0/{t}", torch.cat([r, r[1:3]], 0))
    put(f"join/cat:1/{t}", torch.cat([r, r[:, 2:4]], 1))
    put(f"join/stack:1/{t}", torch.stack([r, r], 1))
for t in NUMBERS:
    r = IN[t]["r"]
    put(f"index/scatter_add:0/{t}", torch.scatter_add(r, 0, index, r[:2]))
put("index/one_hot", F.one_hot(index, 5))
put("make/arange", torch.arange(-3, 11, 4))
put("make/arange_f", torch.arange(0.5, 3.0, 0.5))
put("make/linspace", torch.linspace(-1, 2, 7))

# Promotion: [rank of a][rank of b][dtype of a][dtype of b], dtypes numbered as in ALL here; ranks: dimensions, 0-d,
# number. A number stands for its category. -1 where both are numbers.
ORDER = list(ALL)
table = torch.full((3, 3, 7, 7), -1, dtype=torch.int32)


def operand(rank, name):
    if rank == 2:
        return True if name == "bool" else 1 if name in INTS else 1.0
    return torch.ones((3,) if rank == 0 else (), dtype=ALL[name])


for ra in range(3):
    for rb in range(3):
        for i, a in enumerate(ORDER):
            for j, b in enumerate(ORDER):
                if ra == 2 and rb == 2:
                    continue
                result = torch.result_type(operand(ra, a), operand(rb, b))
                table[ra, rb, i, j] = next(k for k, n in enumerate(ORDER) if ALL[n] == result)
put("promotion", table)

path = pathlib.Path(__file__).parent / "ops.safetensors"
save_file(out, str(path), metadata={"made_by": f"torch {torch.__version__}"})
print(f"{len(out)} tensors, {path.stat().st_size} bytes")
