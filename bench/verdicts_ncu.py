"""Judges the verdicts of `brrr compare` by Nsight Compute (ncu): the regimes of 15 prepared steps by hardware counters
of the kernels of one training step, beside brrr's own. Run `brrr calibrate --device cuda` first.

    python3 bench/verdicts_ncu.py build/release/bin/brrr [--only WORD] [--time SECONDS] [--out FILE.json] [--logs DIR]

The two share one reading, the time of an untraced step. Beyond it brrr's verdict rests on queued steps and on the
ceilings of `brrr calibrate`, and ncu's on what it measures of each kernel, one by one:

- idle: the part of the untraced step that the kernels' durations leave uncovered. Where kernels run side by side their
  durations add up to more than the step; then none is idle, and each counts for less.
- latency: kernels that use neither memory nor an arithmetic pipe at 60 % of its peak (ncu's own limit for "latency
  bound") and whose grid does not fill the GPU once: twice their work would take hardly longer.
- bandwidth, compute: all other kernels, by which is used more: memory (DRAM or L2) or arithmetic (the busiest of the
  tensor, FMA, ALU and XU pipes).

Overhead is idle time and latency. The largest share is the regime. ncu is undecided where the second is less than 10
points below, or where limits of 50 % or 70 % would give another regime.
"""

import argparse
import csv
import dataclasses
import glob
import os
import re
import shutil
import sys
import tempfile
import time

import verdicts
from verdicts import Failed

TINY, SMALL, DEEP, _, WIDE = ("mlp " + sizes for sizes in verdicts.MLP)
WEIGHTS = "mlp --batch 1 --width 8192 --layers 4"
LONG = "transformer --batch 4 --seq 2048 --width 256 --heads 8 --layers 2 --tf32"  # most bytes are softmax's
RESIDUAL = "mlp --batch 16384 --width 512 --layers 2 --residual"
TRANSFORMER = "transformer --batch 8 --seq 512 --width 512 --heads 8 --layers 4"
CASES = [
    (TINY + " --tf32", "eager"), (TINY + " --tf32", "graph"), (SMALL + " --dtype bf16", "fused"),
    (DEEP + " --dtype bf16", "graph"), (DEEP + " --tf32", "fused"),
    (WEIGHTS, "eager"), (WEIGHTS, "fused"), (LONG, "graph"),
    (TRANSFORMER + " --dtype bf16", "eager"), (TRANSFORMER + " --tf32", "graph"),
    (WIDE + " --tf32", "eager"), (WIDE + " --dtype bf16", "graph"), (WIDE + " --dtype bf16", "fused"),
    (RESIDUAL, "fused"), (TRANSFORMER + " --tf32", "fused"),
]
REGIMES = ("overhead", "bandwidth", "compute")
LIMIT, LIMITS = 60, (50, 60, 70)  # percent of a unit's peak
FULL = 0.95  # of a wave: the grid fills the GPU
MARGIN = 0.10  # of shares, as in measure/verdict.cpp
STEPS = 5  # the last one is measured: a replay where the step is compiled

DURATION = "gpu__time_duration.sum"
WAVES = "launch__waves_per_multiprocessor"
OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"
# Names differ between chips: the first that `ncu --query-metrics` lists.
MEMORY = [["dram__throughput", "gpu__dram_throughput"], ["lts__t_sectors", "lts__throughput"]]
ARITHMETIC = [["sm__pipe_tensor_cycles_active", "sm__throughput"],
              ["sm__inst_executed_pipe_fma", "sm__pipe_fma_cycles_active"],
              ["sm__inst_executed_pipe_alu", "sm__pipe_alu_cycles_active"],
              ["sm__inst_executed_pipe_xu"]]
BASIC = [DURATION, *(name + OF_PEAK for name in ("dram__throughput", "lts__throughput", "sm__throughput")), WAVES]
NANOSECONDS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
               "": 1}  # --print-units base


# Percent of peaks, and how often the grid fills the GPU; None: not measured.
@dataclasses.dataclass
class Kernel:
    name: str
    ns: float
    memory: float | None
    arithmetic: float | None
    waves: float | None


# --- What ncu wrote ---

def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:  # "n/a"
        return None


# The name of each kernel and {metric: (value, unit)}. With --page raw a kernel is a row, below a row of units;
# otherwise each metric is a row.
def rows_of(log):
    lines = log.splitlines()
    header = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    table = list(csv.DictReader(line for line in lines[header:] if not line.startswith("==")))
    rows = [row for row in table if row["ID"].isdigit()]
    if rows and "Metric Name" in rows[0]:
        kernels = {}
        for row in rows:
            _, metrics = kernels.setdefault(row["ID"], (row["Kernel Name"], {}))
            metrics[row["Metric Name"]] = (number(row["Metric Value"]), row["Metric Unit"])
        return list(kernels.values())
    units = table[0] if table and not table[0]["ID"] else {}
    return [(row["Kernel Name"],
             {name: (number(value), units.get(name) or "") for name, value in row.items() if isinstance(value, str)})
            for row in rows]


def largest_of(metrics, groups):
    values = [metrics[name + OF_PEAK][0] for group in groups for name in group if name + OF_PEAK in metrics]
    return max((value for value in values if value is not None), default=None)


def kernels_of(log):
    kernels = []
    for name, metrics in rows_of(log):
        value, unit = metrics.get(DURATION, (None, ""))
        if value is None or unit not in NANOSECONDS:
            raise Failed(f"ncu has no {DURATION} of {name} (unit '{unit}')")
        kernels.append(Kernel(name, value * NANOSECONDS[unit], largest_of(metrics, MEMORY),
                              largest_of(metrics, ARITHMETIC), metrics.get(WAVES, (None, ""))[0]))
    return kernels


# --- The judgement ---

# "unknown": a reading that decides is missing.
def part_of(kernel, limit):
    if kernel.memory is None or kernel.arithmetic is None:
        return "unknown"
    if max(kernel.memory, kernel.arithmetic) < limit:
        if kernel.waves is None:
            return "unknown"
        if kernel.waves < FULL:
            return "latency"
    return "bandwidth" if kernel.memory >= kernel.arithmetic else "compute"


def shares_of(kernels, step_ns, limit):
    in_kernels = sum(kernel.ns for kernel in kernels)
    shares = dict.fromkeys(("idle", "latency", "bandwidth", "compute", "unknown"), 0.0)
    for kernel in kernels:
        shares[part_of(kernel, limit)] += kernel.ns / max(in_kernels, step_ns)
    shares["idle"] = max(0.0, 1 - in_kernels / step_ns)
    return shares


def by_regime(shares):
    return {"overhead": shares["idle"] + shares["latency"], **{name: shares[name] for name in REGIMES[1:]}}


# The largest share, and by how much it leads.
def leading(shares):
    ranked = sorted(by_regime(shares).items(), key=lambda item: -item[1])
    return ranked[0][0], ranked[0][1] - ranked[1][1]


# Whether the regime would lead no longer if time that no measured kernel covers were the runner-up's.
def depends_on_idle(shares, regime):
    times = by_regime(shares)
    times["overhead"] -= shares["idle"]
    second = max((name for name in times if name != regime), key=lambda name: times[name])
    return times[regime] - times[second] - shares["idle"] < MARGIN


# `expected`: launches of a step as brrr counts them. Libraries may launch more kernels, and fill workspaces, which ncu
# does not measure.
def judge(kernels, step_us, expected=0):
    if not kernels:
        raise Failed("ncu measured no kernel of the step")
    of_limit = {limit: shares_of(kernels, step_us * 1e3, limit) for limit in LIMITS}
    shares = of_limit[LIMIT]
    regime, margin = leading(shares)
    doubts = [f"a limit of {limit} % gives {other}" for limit in LIMITS
              if (other := leading(of_limit[limit])[0]) != regime]
    if margin < MARGIN:
        doubts.append(f"{regime} leads by {100 * margin:.0f} points")
    if len(kernels) < (0.8 if depends_on_idle(shares, regime) else 0.5) * expected:
        doubts.append(f"{len(kernels)} of {expected} kernels were measured")
    if shares["unknown"] >= margin:
        doubts.append(f"no counters of {100 * shares['unknown']:.0f} % of the step")
    return {"regime": None if doubts else regime, "leading": regime, "margin": margin, "doubts": doubts,
            "shares": shares, "kernels": len(kernels), "kernels_us": sum(kernel.ns for kernel in kernels) / 1e3}


# A verdict within its margin names two regimes: there ncu's choice of the second is no disagreement.
def judgement_of(row, judged):
    if not row["regime"]:
        return "no verdict"
    if not judged["regime"] or judged["regime"] == row["regime"]:
        return "agrees" if judged["regime"] else "undecided"
    close = row["shares"][row["regime"]] - row["shares"][judged["regime"]] < MARGIN
    return "undecided" if close else "disagrees"


# Kernels of the same name, those that take longest first.
def summary_of(kernels, most=10):
    groups = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, part_of(kernel, LIMIT)), []).append(kernel)
    rows = []
    for (name, part), group in groups.items():
        longest = max(group, key=lambda kernel: kernel.ns)
        rows.append({**dataclasses.asdict(longest), "name": name[:100], "part": part, "count": len(group),
                     "ns": sum(kernel.ns for kernel in group)})
    return sorted(rows, key=lambda row: -row["ns"])[:most]


# --- Running ncu ---

def find_ncu():
    installed = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu") + glob.glob("/usr/local/cuda*/bin/ncu"))
    return shutil.which("ncu") or (installed[-1] if installed else None)


def problems_in(text):
    return [line.strip() for line in text.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]


# Of each group the first metric that the GPU has; of one whose names ncu does not list the first.
def metrics_of(ncu):
    out, errors, _ = verdicts.call([ncu, "--query-metrics"], 120)
    listed = set(re.findall(r"^\s*([a-z0-9]+__\w+)", out, re.MULTILINE))
    if not listed:
        print(f"ncu --query-metrics lists none: {' '.join(problems_in(out + errors))}")
    chosen = []
    for group in MEMORY + ARITHMETIC:
        name = next((name for name in group if name in listed), None)
        if name or not listed or group is MEMORY[0]:
            chosen.append((name or group[0]) + OF_PEAK)
    return [DURATION, *chosen, WAVES]


# The kernels of the last step. `whole`: of the last `count` kernels of the process, without ranges of NVTX.
def measure(options, case, mode, metrics, log, whole=None):
    part = ["--nvtx", "--nvtx-include", f"step {STEPS}/"] if whole is None else []
    steps = ["--steps", str(STEPS)] if whole is None else ["--steps", "2", "--matmul", "first"]  # fewer kernels
    command = [options.ncu, *part, "--graph-profiling", "node", "--clock-control", "none", "--cache-control", "none",
               "--replay-mode", "kernel", "--metrics", ",".join(metrics), "--page", "raw", "--csv", "--print-units",
               "base", "--log-file", log, options.program, "train", *case.split(), "--mode", mode, "--device", "cuda",
               "--time", "0", "--json", *steps]
    if os.path.exists(log):
        os.remove(log)
    out, errors, status = verdicts.call(command, options.timeout, {**os.environ, "BRRR_NVTX": "1", "LC_ALL": "C"})
    text = "\n".join([open(log).read() if os.path.exists(log) else "", out, errors])
    problems = problems_in(text)
    kernels = kernels_of(text)
    if status and not kernels:
        raise Failed(f"{' '.join(command)}: exit status {status}: {' '.join(problems) or errors.strip()}")
    return (kernels[-whole:] if whole else kernels), problems


# Where ncu refuses the metrics, with those of its own summary; where no range is seen, of the whole process.
def measure_step(options, case, mode, row, log):
    metrics, notes = options.metrics, []
    try:
        kernels, problems = measure(options, case, mode, metrics, log)
    except Failed as refused:
        if "ERR_NVGPUCTRPERM" in str(refused) or "took longer" in str(refused):
            raise
        metrics, notes = BASIC, [f"measured {' '.join(BASIC)}, since {refused}"]
        kernels, problems = measure(options, case, mode, metrics, log)
    if not kernels:
        kernels, further = measure(options, case, mode, metrics, log, row["kernels_per_step"])
        notes += [*further, f"no range of NVTX was seen: the last {len(kernels)} kernels of the process"]
    return kernels, problems + notes


def percents(shares):
    return " ".join(f"{100 * shares[name]:4.0f}" for name in REGIMES)


def show(row, judged, judgement, problems):
    print(f"  brrr  {row['regime'] or 'no verdict':10} {percents(row['shares']) if row['shares'] else ''}  "
          f"step {row['step_us']:.1f} us, {row['kernels_per_step']} kernels  {'; '.join(row['problems'])}")
    print(f"  ncu   {judged['regime'] or 'undecided':10} {percents(by_regime(judged['shares']))}  "
          f"kernels {judged['kernels_us']:.1f} us, {judged['kernels']} kernels, "
          f"idle {100 * judged['shares']['idle']:.0f} %  {'; '.join(judged['doubts'])}")
    print("\n".join(f"  {text}" for text in [judgement, *problems]), flush=True)


def run_case(options, case, mode, documents, log):
    if case not in documents:
        documents[case] = verdicts.compare(options.program, case, "cuda", options.time, timeout=options.timeout)
    row = next(row for row in documents[case]["rows"] if row["mode"] == mode)
    kernels, problems = measure_step(options, case, mode, row, log)
    judged = judge(kernels, row["step_us"], row["kernels_per_step"])
    judgement = judgement_of(row, judged)
    show(row, judged, judgement, problems)
    kept = {name: row[name] for name in ("regime", "shares", "problems", "step_us", "device_us", "kernels_per_step")}
    return {"brrr": kept, "ncu": judged, "judgement": judgement, "messages": problems, "longest": summary_of(kernels)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--ncu", default=find_ncu())
    parser.add_argument("--only", default="", help="cases whose text has this word, such as transformer or graph")
    parser.add_argument("--time", type=float, default=0.3, help="seconds of each of brrr's measurements")
    parser.add_argument("--timeout", type=float, default=90, help="seconds of each command at most")
    parser.add_argument("--out")
    parser.add_argument("--logs", help="keep what ncu wrote in this folder")
    options = parser.parse_args()
    if not options.ncu:
        sys.exit("verdicts_ncu: ncu is not installed")
    options.metrics = metrics_of(options.ncu)
    print("metrics: " + " ".join(options.metrics) + "\nshares in percent: overhead, bandwidth, compute")
    start, results, documents, counts = time.monotonic(), [], {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.logs or scratch
        os.makedirs(folder, exist_ok=True)
        for index, (case, mode) in enumerate(CASES):
            if options.only not in f"{case} {mode}":
                continue
            print(f"\n{case} --mode {mode}  ({time.monotonic() - start:.0f} s)", flush=True)
            result = {"case": case, "mode": mode}
            try:
                result |= run_case(options, case, mode, documents, os.path.join(folder, f"{index:02}-{mode}.csv"))
            except (Failed, OSError, ValueError, KeyError) as problem:
                result |= {"judgement": "failed", "messages": [f"{type(problem).__name__}: {problem}"]}
                print(f"  failed: {result['messages'][0]}")
            results.append(result)
            counts[result["judgement"]] = counts.get(result["judgement"], 0) + 1
            if options.out:
                verdicts.write(options.out, {"metrics": options.metrics, "limits": LIMITS, "counts": counts,
                                             "cases": results})
    print(f"\nverdicts by ncu: {counts} of {len(results)}, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
