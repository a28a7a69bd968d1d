"""What recording a timeline costs, by what CUPTI records: runs `brrr trace` with different kinds of record, and divides
the traced step into the time before its first kernel, from the first to the last, and after the last.

    python3 bench/tracing_cost.py build/release/bin/brrr [--only WORD] [--out FILE.json]
"""

import argparse
import json
import os
import statistics
import tempfile

import verdicts
from verdicts import Failed

MEDIUM = "mlp --batch 2048 --width 1024 --layers 8"
CASES = [f"{MEDIUM} {dtype} --mode {mode}" for dtype in ("--tf32", "--dtype bf16") for mode in ("fused", "eager")]
CASES += ["mlp --batch 128 --width 256 --layers 8 --dtype bf16 --mode fused",
          "mlp --batch 8192 --width 4096 --layers 4 --dtype bf16 --mode fused"]
KINDS = ["all", "none", "calls", "work", "serial", "graphs", "captured"]


# Medians over the recorded steps, in us; no kernels: none were recorded.
def parts_of(trace):
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    parts = []
    for step in (event for event in slices if event["cat"] == "step"):
        start, end = step["ts"], step["ts"] + step["dur"]
        work = [e for e in slices if e["cat"] in ("kernel", "copy", "fill") and start <= e["ts"] <= end]
        if work:
            first, last = min(e["ts"] for e in work), max(e["ts"] + e["dur"] for e in work)
            parts.append({"before": first - start, "device": last - first, "after": end - last,
                          "kernels": sum(e["dur"] for e in work), "count": len(work)})
    return {name: statistics.median(part[name] for part in parts) for name in parts[0]} if parts else {}


def trace(program, case, kind, path):
    environment = os.environ | ({"BRRR_CUPTI": kind} if kind != "all" else {})
    command = [program, "trace", *case.split(), "--device", "cuda", "--steps", "5", "--json", "--out", path]
    out, errors, status = verdicts.call(command, 60, environment)
    if status:
        raise Failed(f"{' '.join(command)}: {errors.strip()}")
    document = json.loads(out)
    with open(path) as file:
        return document, parts_of(json.load(file))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in (case for case in CASES if options.only in case):
            print(f"\n{case}\n  {'kinds':9} untraced   traced      %  before  device   after  kernels' sum, count")
            for kind in KINDS:
                if kind == "captured" and "eager" in case:
                    continue
                try:
                    document, parts = trace(options.program, case, kind, os.path.join(folder, "trace.json"))
                except (Failed, OSError, ValueError) as problem:
                    print(f"  {kind:9} failed: {problem}")
                    continue
                untraced, traced = (document[name]["us"] for name in ("untraced_before", "traced"))
                rows.append({"case": case, "kinds": kind, "untraced_us": untraced, "traced_us": traced,
                             "perturbation": document["perturbation"], "missing": document["missing"], **parts})
                print(f"  {kind:9} {untraced:8.1f} {traced:8.1f} {100 * (traced / untraced - 1):+6.1f}  "
                      + "  ".join(f"{value:6.1f}" for value in parts.values()), flush=True)
                if options.out:
                    verdicts.write(options.out, rows)


if __name__ == "__main__":
    main()
