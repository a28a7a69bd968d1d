"""The cases of `brrr bench`, in PyTorch eager, on the same device: host costs, pointwise, reductions, products.

Prints one JSON document, {"results": [{"name", "device", "value", "unit"}], "machine": {...}}, with the names of
`brrr bench`. Usage: torch_eager.py [cpu|cuda]
"""

import json
import platform
import sys
import time

import torch


def device_chosen():
    if len(sys.argv) > 1:
        return sys.argv[1]
    return "cuda" if torch.cuda.is_available() else "cpu"


DEVICE = device_chosen()
ON_GPU = DEVICE == "cuda"
results = []


def synchronize():
    if ON_GPU:
        torch.cuda.synchronize()


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def host_seconds(op, synchronized=True, samples=15, sample_seconds=2e-3):
    """Seconds per call by the host's clock; with `synchronized`, until the device is done with the last."""

    def batch(calls):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            op()
        if synchronized:
            synchronize()
        return (time.perf_counter() - start) / calls

    batch(50)
    calls = max(1, int(sample_seconds / batch(50)))
    return median(batch(calls) for _ in range(samples))


def device_seconds(op, samples=15, sample_seconds=2e-3, warm_seconds=0):
    """Seconds per call by the device's events; before the samples the op runs for `warm_seconds`."""
    if not ON_GPU:
        return host_seconds(op, samples=samples, sample_seconds=sample_seconds)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def batch(calls):
        start.record()
        for _ in range(calls):
            op()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / calls

    batch(3)
    calls = max(1, round(sample_seconds / batch(3)))
    begin = time.perf_counter()
    while time.perf_counter() - begin < warm_seconds:
        batch(calls)
    return median(batch(calls) for _ in range(samples))


def add(name, value, unit):
    results.append({"name": name, "device": DEVICE, "value": value, "unit": unit})


def rand(*shape, dtype=torch.float32):
    return torch.rand(*shape, device=DEVICE, dtype=dtype)


def centred(*shape, dtype=torch.float32):
    """Both signs, as `brrr bench matmul` has them: products of one sign draw less power and run faster."""
    return rand(*shape, dtype=dtype) - 0.5


def overhead():
    def row(name, op, synchronized=True):
        add("overhead/" + name, host_seconds(op, synchronized) * 1e9, "ns")

    x, y = rand(64, 64), rand(64, 64)
    if ON_GPU:
        a, b, c, r = rand(256), rand(256), rand(64, 1), rand(1, 64)
        row("add 256", lambda: a + b)
        row("add [64,1]+[1,64]", lambda: c + r)
        row("sum 64x64", x.sum)
        row("view", lambda: a.view(16, 16), False)
        row("empty", lambda: torch.empty(1, device=DEVICE), False)
    else:
        torch.set_num_threads(1)
        a, b, c, r = rand(1), rand(1), rand(2, 1), rand(1, 2)
        p, q, s = rand(1024), rand(1024), rand(64)
        row("add 1", lambda: a + b)
        row("add [2,1]+[1,2]", lambda: c + r)
        row("add 1024", lambda: p + q)
        row("view", lambda: a.view(1, 1))
        row("empty", lambda: torch.empty(1))
        row("sum 64", s.sum)
    row("matmul 64x64", lambda: x @ y)


def pointwise():
    side = 16384 if ON_GPU else 2896
    elements = side * side
    a, b, row, column = rand(side, side), rand(side, side), rand(side), rand(side, 1)
    mask = a > 0.5
    h, k = a.bfloat16(), b.bfloat16()
    cases = {
        "add": (12, lambda: a + b),
        "cos": (8, lambda: torch.cos(a)),
        "gelu": (8, lambda: torch.nn.functional.gelu(a)),
        "where": (13, lambda: torch.where(mask, a, b)),
        "mul by a number": (8, lambda: a * 1.5),
        "add row": (8, lambda: a + row),
        "add column": (8, lambda: a + column),
        "add row to column": (4, lambda: row + column),
        "add transposed": (12, lambda: b + a.T),
        "add half of each row": (6, lambda: a[:, : side // 2] + b[:, side // 2 :]),
        "add every second": (10, lambda: a[:, ::2] + b[:, 1::2]),
        "add bf16": (6, lambda: h + k),
        "cos bf16": (4, lambda: torch.cos(h)),
    }
    for name, (bytes_each, op) in cases.items():
        add("pointwise/" + name, bytes_each * elements / device_seconds(op) * 1e-9, "GB/s")


def reduce():
    rows, columns = (16384 if ON_GPU else 4096), 4096
    inputs = [rand(rows, columns) for _ in range(4 if ON_GPU else 1)]
    turn = [0]

    def next_input():
        turn[0] += 1
        return inputs[turn[0] % len(inputs)]

    cases = {
        "sum rows": lambda: next_input().sum(1),
        "sum columns": lambda: next_input().sum(0),
        "sum all": lambda: next_input().sum(),
        "max rows": lambda: next_input().amax(1),
        "max columns": lambda: next_input().amax(0),
        "norm all": lambda: next_input().norm(),
        "argmax rows": lambda: next_input().argmax(1),
    }
    for name, op in cases.items():
        add("reduce/" + name, 4 * rows * columns / device_seconds(op) * 1e-9, "GB/s")


def products():
    def case(m, n, k, dtype, precision, transpose_a, transpose_b):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        sets = max(2, min(16, int(256e6 / ((m * k + k * n) * dtype.itemsize))))
        a = [centred(k, m, dtype=dtype).T if transpose_a else centred(m, k, dtype=dtype) for _ in range(sets)]
        b = [centred(n, k, dtype=dtype).T if transpose_b else centred(k, n, dtype=dtype) for _ in range(sets)]
        turn = [0]

        def op():
            turn[0] += 1
            return a[turn[0] % sets] @ b[turn[0] % sets]

        form = "NT"[transpose_a] + "NT"[transpose_b]
        name = f"matmul/{m}x{n}x{k} {precision} {form}"
        # As `brrr bench matmul`: products lower the clock of a card that is at its power limit.
        add(name, 2 * m * n * k / device_seconds(op, warm_seconds=1) * 1e-9, "GFLOP/s")

    if not ON_GPU:
        for size in (64, 256, 1024):
            a, b = centred(size, size), centred(size, size)
            add(f"matmul/{size}x{size}x{size} f32", 2 * size**3 / host_seconds(lambda: a @ b) * 1e-9, "GFLOP/s")
        return
    for precision, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
        for transpose_a in (0, 1):
            for transpose_b in (0, 1):
                case(4096, 8192, 4096, dtype, precision, transpose_a, transpose_b)
        case(256, 128, 256, dtype, precision, 0, 0)
        case(1024, 1024, 1024, dtype, precision, 0, 0)


with torch.no_grad():
    torch.manual_seed(0)
    pointwise()
    reduce()
    products()
    overhead()

machine = {
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "gpu": torch.cuda.get_device_name() if ON_GPU else None,
    "cpu": platform.processor(),
    "threads": torch.get_num_threads(),
}
json.dump({"results": results, "machine": machine}, sys.stdout, indent=2)
print()
