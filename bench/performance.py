"""Generates docs/performance.md, docs/lab.md and the table between two markers of README.md, from result files of
`./dev gpu`, `./dev bench`, bench/fused_steps.py, bench/verdicts.py and `brrr lab all --json`. Of the last three, the
newest result of a device is used: bench/results/TAG-DATE-WHAT.json.

    python3 bench/performance.py bench/results/GPU.json bench/results/CPU.json
"""

import json
import pathlib
import statistics
import sys
import textwrap

from verdicts import judgement_of

root = pathlib.Path(__file__).parent.parent
gpu_file, cpu_file = (pathlib.Path(name) for name in sys.argv[1:3])


def newest(tag, what):
    # Names have the date after the tag, so the last one is the newest.
    found = sorted((root / "bench" / "results").glob(f"{tag}-????-??-??-{what}.json"))
    if not found:
        sys.exit(f"expected bench/results/{tag}-DATE-{what}.json, found none")
    return found[-1]


gpu_lab_file, cpu_lab_file = (newest(tag, "lab") for tag in ("nvidia-h200", "amd-epyc-2-cores"))
predictions_file = newest("amd-epyc-2-cores", "predictions")
fused_file, verdicts_file, gpu_predictions_file = (
    newest("nvidia-h200", what) for what in ("fused-steps", "verdicts", "predictions"))
files = [gpu_file, cpu_file, predictions_file, gpu_lab_file, cpu_lab_file, fused_file, verdicts_file, gpu_predictions_file]
gpu, cpu, predictions, gpu_lab, cpu_lab, fused, verdicts, gpu_predictions = (json.loads(file.read_text()) for file in files)


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


def of_peers(step):
    """The step times of peers in the run of fused steps, by mode."""
    of = {r["name"]: r["value"] for r in fused["results"]}
    return {mode: of[f"{step} {mode}"] for mode in ("jit", "graph", "compiled") if f"{step} {mode}" in of}


def fused_steps():
    of = {r["name"]: r for r in fused["results"]}
    for name in (name.removesuffix(" brrr fused") for name in of if name.endswith(" brrr fused")):
        peers, row = of_peers(name), of[f"{name} brrr fused"]
        cells = [f"{peers[mode]:,.0f} µs" if mode in peers else "–" for mode in ("jit", "graph", "compiled")]
        lines.append(
            f"| {name.removeprefix('steps/')} | {row['kernels']:.0f} | {of[name + ' brrr graph']['value']:,.1f} µs | "
            f"{row['value']:,.1f} µs | {' | '.join(cells)} | {min(peers.values()) / row['value']:.1f} |"
        )


lines += [
    "# Performance",
    "",
    "Medians of warm runs on random inputs. Limits and PyTorch 2.11 were measured in the same run as brrr. "
    "`bench/performance.py` generates this page, up to the section on fused products, from the JSON files that it names.",
    "",
    "## Training steps on an NVIDIA H200",
    "",
    f"Data: `bench/results/{gpu_file.name}`. `./dev gpu DIR` repeats the measurements on a machine with a GPU.",
    "",
    "One step of an MLP: gelu, mean squared error, Adam with averages in the parameters' dtype. PyTorch runs eagerly, and with "
    "the whole step in one CUDA Graph. The last two columns are brrr's speed-up over PyTorch in the same mode.",
    "",
    "| size | batch | width | layers |",
    "|---|---|---|---|",
    "| tiny | 32 | 64 | 4 |",
    "| small | 128 | 256 | 8 |",
    "| deep | 64 | 128 | 32 |",
    "| medium | 2048 | 1024 | 8 |",
    "| wide | 8192 | 4096 | 4 |",
    "",
    "| step | launches | eager | graph | PyTorch eager | PyTorch graph | speed-up, eager | speed-up, graph |",
    "|---|---|---|---|---|---|---|---|",
]
steps()
lines += [
    "",
    f"Fused steps beside JAX {fused['machine']['jax']} and PyTorch {fused['machine']['torch'].split('+')[0]}, the rows of a size in one run "
    f"(`python3 bench/fused_steps.py build/release/bin/brrr`, `bench/results/{fused_file.name}`): `jax.jit` with donated state; the "
    "whole step in one CUDA Graph; forward and backward by `torch.compile` (max-autotune), in one CUDA Graph with the optimizer. The "
    "last column is brrr's speed-up over the fastest of them.",
    "",
    "| step | kernels | brrr graph | brrr fused | JAX jit | PyTorch graph | PyTorch compiled, graph | speed-up |",
    "|---|---|---|---|---|---|---|---|",
]
fused_steps()
lines += [
    "",
    "## Overhead, bandwidth and matrix products on the H200",
    "",
    "| case | brrr | limit | ratio | PyTorch eager |",
    "|---|---|---|---|---|",
]
overhead("add 256", "add of 256 f32, repeated", "bare launches of that kernel")
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
    "Matrix products run with `MatmulChoice::measured`. A ratio well above 1 means that brrr first transposes an operand with its "
    "own kernel. Products of this size run at the GPU's power limit: its clock falls from 1980 to about 1500 MHz within 0.2 s, "
    "so a burst of six products appears up to a fifth faster than sustained work "
    "(`bench/results/nvidia-h200-2026-11-21-experiments.json`, \"clock\"). Every rate, brrr's and PyTorch's, is measured after "
    "one second of the same product.",
    "",
    "Bare launches are plain `cuLaunchKernel` calls. brrr launches its own kernels with programmatic dependent launch, which "
    "costs the host less, so some ratios are below 1.",
    "",
    "## CPU",
    "",
    f"Two cores of an AMD EPYC. Data: `bench/results/{cpu_file.name}`; `./dev bench` repeats the measurements. One thread, unless "
    "stated otherwise.",
    "",
    "| case | brrr |",
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
    f"| add of 8M elements, 2 threads, relative to a plain vectorized loop on 2 threads | {add['ratio'] * 100:.0f} % |"
)

lines += [
    "",
    "## Predictions",
    "",
    "`brrr calibrate` measures a machine's ceilings, and `brrr compare` prints the step time that they predict beside the "
    "measured one ([cli.md](cli.md)). [design.md](design.md) has the model. µs a step, and by how much the prediction differs:",
]


def predicted_table(documents):
    lines.extend(["| model | eager | graph | fused |", "|---|---|---|---|"])
    for model in documents:
        cells = [
            f"{row['step_us']:,.0f} ({row['predicted_us'] / row['step_us'] - 1:+.0%})".replace("-", "−")
            for row in model["rows"]
        ]
        lines.append(f"| {model['command']} | {' | '.join(cells)} |")


def errors_of(documents):
    errors = [abs(row["prediction_error"]) for document in documents for row in document["rows"]]
    return (
        f"The median error is {statistics.median(errors):.0%}, the worst {max(errors):.0%}; the predicted order of the three modes is "
        f"right for {sum(document['order_right'] for document in documents)} of {len(documents)} models."
        f"{errors_at_timed_speed(documents)}"
    ).replace("%", " %")


# A shared host's speed changes between a prediction and the timing.
def errors_at_timed_speed(documents):
    rows = [row for document in documents for row in document["rows"]]
    if "at_timed_speed" not in rows[0]:
        return " Eager steps of this file are predicted for the host's speed while they were timed."
    errors = [abs((row["at_timed_speed"] or row)["prediction_error"]) for row in rows]
    return (
        f" With eager steps predicted for the host's speed during the timing the median is "
        f"{statistics.median(errors):.0%}, the worst {max(errors):.0%}."
    )


def doubling_of(documents):
    rows = [row for document in documents for row in document["rows"]]
    judgements = [judgement_of(row) for row in rows]
    return (
        f"`brrr compare MODEL --double-batch` "
        f"names the regime of each step and then doubles the batch ([measuring.md](measuring.md#twice-the-batch)): of {len(rows)} steps the "
        f"time at twice the batch agrees with the verdict in {judgements.count('agrees')}, disagrees in {judgements.count('disagrees')} and "
        f"leaves {judgements.count('undecided')} undecided, where regimes expect nearly the same or none alone expects it; "
        f"{judgements.count('no verdict')} have no verdict, since their samples are disturbed. (The recorded ratios, judged by the present rule.)"
    ).replace("%", " %")


lines += [
    "",
    "On an H200 (`brrr calibrate --device cuda`, then the cases of `bench/verdicts.py --predictions`,",
    f"`bench/results/{gpu_predictions_file.name}`). {errors_of(gpu_predictions['documents'])}",
    "",
]
predicted_table(gpu_predictions["documents"])
lines += ["", f"{doubling_of(verdicts['documents'])} (`bench/results/{verdicts_file.name}`)"]
lines += ["", f"On two cores of an AMD EPYC (`bench/results/{predictions_file.name}`). {errors_of(predictions['documents'])}", ""]
predicted_table(predictions["documents"])


def reading(r):
    digits = 3 if abs(r["value"]) < 1000 else len(f"{r['value']:.0f}")
    unit = f" {r['unit']}" if r["unit"] else ""
    return f"{r['name']} {r['value']:.{digits}g}{unit}"


# Documents before "outcome" was recorded called disturbed readings confirmed or differing too.
def outcome(finding):
    if "outcome" in finding:
        return finding["outcome"]
    if any(r["claim"] and r["spread"] > 0.1 for r in finding["readings"]):
        return "undecided"
    return "confirmed" if finding["confirmed"] else "differs"


def confirmed(lab):
    outcomes = [outcome(finding) for finding in lab["findings"]]
    undecided = outcomes.count("undecided")
    return f"{outcomes.count('confirmed')} of {len(outcomes)} claims hold" + (
        f" and {undecided} {'is' if undecided == 1 else 'are'} undecided" if undecided else "")


def tested(finding):
    readings = "; ".join(reading(r) for r in finding["readings"] if r["claim"])
    mark = "" if outcome(finding) == "confirmed" else f"**{outcome(finding)}:** "
    return f"{mark}{readings}{' ~' if finding['disturbed'] else ''}"


lab_lines = [
    "# The lab",
    "",
    "`brrr lab all` runs the experiments of [Making Deep Learning Go Brrrr From First Principles](https://horace.io/brrr_intro.html) "
    f"([cli.md](cli.md)). On an H200 {confirmed(gpu_lab)}, on two cores of an AMD EPYC {confirmed(cpu_lab)}. "
    f"Data, with the numbers that explain the others: `bench/results/{gpu_lab_file.name}`, `{cpu_lab_file.name}`. "
    "~: the samples of a reading spread by more than 10 %; where the claim is about that reading, it is undecided.",
    "",
    "| experiment | claim | on an H200 | on two CPU cores |",
    "|---|---|---|---|",
]
on_gpu, on_cpu = ({finding["name"]: finding for finding in lab["findings"]} for lab in (gpu_lab, cpu_lab))
for name in on_cpu | on_gpu:
    claim = (on_cpu.get(name) or on_gpu[name])["claim"]
    results_of = (tested(lab[name]) if name in lab else "not run yet" for lab in (on_gpu, on_cpu))
    lab_lines.append(f"| {name} | {claim} | {' | '.join(results_of)} |")


def wrapped(page):
    return [
        line if line.startswith("|") else textwrap.fill(line, 118, break_long_words=False, break_on_hyphens=False)
        for line in page
    ]


(root / "docs" / "lab.md").write_text("\n".join(wrapped(lab_lines)) + "\n")

# What follows the marker is written by hand: tables of experiments, each with its file of results.
page = root / "docs" / "performance.md"
marker = "<!-- end of what bench/performance.py writes -->"
page.write_text("\n".join([*wrapped(lines), "", marker]) + page.read_text().split(marker)[1])

# --- README's five figures ---


def speed_up(step, mode):
    ours = results(gpu, "steps")[f"steps/{step} {mode}"]["value"]
    peer = results(gpu, "torch_steps")[f"steps/{step} {mode}"]["value"]
    label = {"eager": "PyTorch eager", "graph": "PyTorch in a CUDA Graph"}[mode]
    return f"{ours:,.0f} µs", f"{label} {peer:,.0f} µs: brrr is {peer / ours:.1f} times as fast"


pointwise = results(gpu, "pointwise")["pointwise/add"]
fastest_peer, fastest = min((value, mode) for mode, value in of_peers("steps/tiny tf32").items())
peer_name = {"jit": "JAX jit", "graph": "PyTorch in a CUDA Graph", "compiled": "PyTorch compiled, in a CUDA Graph"}[fastest]
fused_step = next(r["value"] for r in fused["results"] if r["name"] == "steps/tiny tf32 brrr fused")
rows = [
    (
        "H200",
        "training step of a 4-layer MLP (32 × 64, TF32), fused",
        f"{fused_step:.0f} µs",
        f"{peer_name} {fastest_peer:.0f} µs: brrr is {fastest_peer / fused_step:.1f} times as fast",
    ),
    ("H200", "training step of a 32-layer MLP (64 × 128, TF32), eager, 200 kernels", *speed_up("deep tf32", "eager")),
    (
        "H200",
        "host time to replay that 32-layer step",
        f"{results(gpu, 'steps')['steps/deep tf32 replay host']['value']:.1f} µs",
        "one graph launch",
    ),
    (
        "H200",
        "`a + b` on 2²⁸ floats",
        f"{pointwise['value'] / 1000:.2f} TB/s",
        f"device copy {pointwise['limit'] / 1000:.2f} TB/s",
    ),
    (
        "CPU",
        "`a + b` on one float, result allocated and dropped",
        f"{results(cpu, 'overhead')['overhead/add 1']['value']:.0f} ns",
        "no system allocation",
    ),
]
table = ["| machine | what | brrr | reference |", "|---|---|---|---|"]
table += ["| " + " | ".join(row) + " |" for row in rows]
readme = root / "README.md"
text = readme.read_text()
begin, end = "<!-- figures: bench/performance.py -->", "<!-- end of figures -->"
start, stop = text.index(begin) + len(begin), text.index(end)
readme.write_text(text[:start] + "\n" + "\n".join(table) + "\n" + text[stop:])
