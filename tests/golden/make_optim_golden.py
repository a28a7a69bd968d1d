"""Writes optim_golden.safetensors: 20 steps of PyTorch's optimizers, for tests/nn/test_optim_golden.cpp.

Needs torch and safetensors. Run as: python3 make_optim_golden.py
Values and gradients are closed forms computed in double precision, so that no random number is needed: with i an
element's place among all parameters and t the step from 1,
  p_i = 2 cos(0.37 i),   loss = sum 0.35 p_i^2 + c p_i,   gradient = 0.7 p_i + c,   c = sin(1.3 i + 0.9 t) + 0.05.
"""

import pathlib

import torch
from safetensors.torch import save_file

SHAPES = [(7, 3), (5,)]
STEPS = 20
torch.set_num_threads(1)


def place(shape, start):
    count = int(torch.Size(shape).numel())
    return torch.arange(start, start + count, dtype=torch.float64).reshape(shape)


def places():
    start = 0
    for shape in SHAPES:
        yield place(shape, start)
        start += int(torch.Size(shape).numel())


def run(make, dtype, clip=None):
    params = [torch.nn.Parameter((2 * torch.cos(0.37 * i)).to(dtype)) for i in places()]
    optimizer = make(params)
    losses = []
    for t in range(1, STEPS + 1):
        loss = 0.0
        for p, i in zip(params, places()):
            c = torch.sin(1.3 * i + 0.9 * t) + 0.05
            value = p.detach().double()
            loss += float((0.35 * value * value + c * value).sum())
            p.grad = (0.7 * value + c).to(dtype)
        losses.append(loss)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
    return params, losses


ADAM = dict(lr=0.05, betas=(0.9, 0.999), eps=1e-8)
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), None),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), None),
    "nesterov": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), None),
    "l2": (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2), None),
    "adam": (lambda p: torch.optim.Adam(p, **ADAM), None),
    "adamw": (lambda p: torch.optim.AdamW(p, weight_decay=0.1, **ADAM), None),
    "adam_clipped": (lambda p: torch.optim.Adam(p, **ADAM), 1.5),
}

out = {}
for name, (make, clip) in OPTIMIZERS.items():
    for type_name, dtype in {"f32": torch.float32, "f64": torch.float64}.items():
        params, losses = run(make, dtype, clip)
        for k, p in enumerate(params):
            out[f"{name}/{type_name}/params.{k}"] = p.detach().clone().contiguous()
        out[f"{name}/{type_name}/losses"] = torch.tensor(losses, dtype=torch.float64)

path = pathlib.Path(__file__).with_name("optim_golden.safetensors")
save_file(out, path, metadata={"torch": torch.__version__})
print(f"{path}: {len(out)} tensors, torch {torch.__version__}")
