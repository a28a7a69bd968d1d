"""Writes the section "Measured" of README.md from result files of `./dev gpu` and `./dev bench`.

    python3 bench/readme.py bench/results/GPU.json bench/results/CPU.json
"""

import json
import pathlib
import sys

root = pathlib.Path(__file__).parent.parent
gpu_file, cpu_file = (pathlib.Path(name) for name in sys.argv[1:3])
gpu, cpu = json.loads(gpu_file.read_text()), json.loads(cpu_file.read_text())


def results(document, part):
    return {r["name"]: r for r in document.get(part, {}).get("results", [])}


torch = results(gpu, "torch_eager")
lines = []


def of_torch(name, scale, unit):
    if name not in torch:
        return "–"
    value = torch[name]["value"] / scale
    return f"{value:,.{0 if value >= 100 else 2}f} {unit}"


def overhead(name, label, limit):
    r = results(gpu, "overhead")[f"overhead/{name}"]
    lines.append(
        f"| {label} | {r['value'] / 1000:.2f} µs | {r['limit'] / 1000:.2f} µs, {limit} | {r['ratio']:.2f} | "
        f"{of_torch('overhead/' + name, 1000, 'µs')} |"
    )


def bandwidth(part, name, label):
    r = results(gpu, part)[f"{part}/{name}"]
    lines.append(
        f"| {label} | {r['value']:,.0f} GB/s | {r['limit']:,.0f} GB/s, device copy | {r['ratio']:.2f} | "
        f"{of_torch(f'{part}/{name}', 1, 'GB/s')} |"
    )


def matmul(name):
    r = results(gpu, "matmul")[f"matmul/{name}"]
    lines.append(
        f"| matmul {name.replace('x', '×')} | {r['value'] / 1000:,.0f} TFLOP/s | {r['limit'] / 1000:,.0f}, best of the "
        f"offered cublasLt algorithms | {r['ratio']:.2f} | {of_torch('matmul/' + name, 1000, 'TFLOP/s')} |"
    )


def host(name, label):
    r = results(gpu, "steps").get(f"steps/{name} host")
    if r:
        lines.append(
            f"| {label} | {r['value']:,.0f} µs | {r['limit']:,.0f} µs, bare launches of the same kernels | {r['ratio']:.2f} | – |"
        )


def replay(name, label, digits=2):
    found = results(gpu, "steps").get(name)
    if found:
        lines.append(f"| {label} | {found['value']:,.{digits}f} {found['unit'].replace('us', 'µs')} | – | – | – |")


def steps():
    ours, peers = results(gpu, "steps"), results(gpu, "torch_steps")
    for name in (name.removesuffix(" graph") for name in ours if name.startswith("steps/") and name.endswith(" graph")):
        (eager, graph), (torch_eager, torch_graph) = (
            [found[f"{name} {mode}"]["value"] for mode in ("eager", "graph")] for found in (ours, peers)
        )
        lines.append(
            f"| {name.removeprefix('steps/')} | {ours[name + ' kernels']['value']:.0f} | {eager:,.0f} µs | {graph:,.0f} µs | "
            f"{torch_eager:,.0f} µs | {torch_graph:,.0f} µs | {torch_eager / eager:.1f} | {torch_graph / graph:.2f} |"
        )


lines += [
    "## Measured",
    "",
    f"On an NVIDIA H200 (`bench/results/{gpu_file.name}`; `./dev gpu DIR` runs it all again). Medians, warm, random "
    "inputs; a limit and PyTorch 2.11 were measured in the same run.",
    "",
    "One training step of an MLP (gelu, mean squared error, Adam with its averages in the parameters' type), called and "
    "replayed; PyTorch eager, and its whole step as a CUDA Graph. The last two columns are how many times faster brrr is, "
    "each in its own mode. Batch, width, layers: tiny 32, 64, 4; small 128, 256, 8; deep 64, 128, 32; medium 2048, 1024, 8; "
    "wide 8192, 4096, 4.",
    "",
    "| | launches | eager | graph | PyTorch eager | PyTorch graph | eager | graph |",
    "|---|---|---|---|---|---|---|---|",
]
steps()
lines += ["", "| CUDA | brrr | limit | ratio | PyTorch eager |", "|---|---|---|---|---|"]
overhead("add 256", "add of 256 f32, back to back", "bare launches of that kernel")
overhead("matmul 64x64", "matmul 64×64 f32", "bare cublasLtMatmul")
host("tiny tf32", "eager tiny step, until the call returns")
host("deep tf32", "eager deep step, until the call returns")
replay("steps/deep tf32 replay host", "replay of the deep step, until the call returns")
replay("graph/per node", "replay, a node of a chain of 200 tiny kernels")
replay("graph/per node, not programmatic", "the same without programmatic launches")
replay("graph/16 chains", "replay of 16 chains of ten products 64×64", 1)
replay("graph/16 chains, one lane", "the same in one lane", 1)
replay("trace/deep", "tracing and planning the deep step")
bandwidth("pointwise", "cos", "cos, 2²⁸ f32")
bandwidth("pointwise", "add", "add")
bandwidth("pointwise", "where", "where")
bandwidth("pointwise", "add row", "add of a row to each row")
bandwidth("pointwise", "add column", "add of a column to each column")
bandwidth("pointwise", "add transposed", "add of a transposed operand")
bandwidth("reduce", "sum rows", "sum over rows, 16384×4096 f32")
bandwidth("reduce", "sum columns", "sum over columns")
bandwidth("reduce", "sum all", "sum of all")
for dtype in ("tf32", "bf16"):
    for form in ("NN", "NT", "TN", "TT"):
        matmul(f"4096x8192x4096 {dtype} {form}")
lines += [
    "",
    "Matrix products run with `Choice::measured`; where the ratio is well above 1, an operand is first transposed by "
    "brrr's own kernel. Products of this size draw all the power that the card may have: its clock falls from 1980 to some "
    "1500 MHz within a fifth of a second, and what a burst of six shows is up to a fifth above what goes on "
    f"(`bench/results/{gpu_file.stem}-experiments.json`, \"clock\"). Ours, the bare calls and PyTorch's are measured after a "
    "second of the same product.",
    "",
    "Bare launches are plain ones; brrr launches its own kernels programmatically, which costs the host less.",
    "",
    f"On two cores of an AMD EPYC (`bench/results/{cpu_file.name}`; `./dev bench` runs it again):",
    "",
    "| CPU, one thread unless said | brrr |",
    "|---|---|",
]
for name, label in {
    "add 1": "add of one element, result allocated and dropped",
    "add 1, recorded": "the same, recorded for its gradient",
    "backward, a node of 1000 mul": "backward, a node of a chain of 1000 products",
    "add [2,1]+[1,2]": "add [2,1] + [1,2]",
    "add 1024": "add of 1024 elements",
    "view": "view",
    "empty": "empty",
}.items():
    lines.append(f"| {label} | {results(cpu, 'overhead')[f'overhead/{name}']['value']:.1f} ns |")
add = results(cpu, "pointwise")["pointwise/add"]
lines.append(
    f"| add of 8M elements, 2 threads, against a plain vectorized loop on as many | {add['ratio'] * 100:.0f} % |"
)

readme = root / "README.md"
text = readme.read_text()
start, end = text.index("## Measured"), text.index("## Install")
readme.write_text(text[:start] + "\n".join(lines) + "\n\n" + text[end:])
