"""Runs `brrr compare --double-batch` on steps of every regime: each mode's verdict beside what twice the batch says,
predicted beside measured times, and whether the predicted order of modes is right. Run `brrr calibrate` first.

    python3 bench/verdicts.py build/release/bin/brrr [--device cpu|cuda] [--time SECONDS] [--predictions] [--out FILE.json]

`--predictions` leaves out twice the batch, which takes half of the time.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

MLP = ["--batch {} --width {} --layers {}".format(*sizes) for sizes in
       [(32, 64, 4), (128, 256, 8), (64, 128, 32), (2048, 1024, 8), (8192, 4096, 4)]]
CASES = {
    "cuda": [f"mlp {sizes} {dtype}" for dtype in ("--tf32", "--dtype bf16") for sizes in MLP]
    + ["mlp --batch 1 --width 8192 --layers 4",  # bytes of weights: twice the batch moves hardly more
       "mlp --batch 8192 --width 128 --layers 8 --activation gelu",
       "mlp --batch 16384 --width 512 --layers 2 --residual",
       "transformer --batch 8 --seq 512 --width 512 --heads 8 --layers 4 --tf32",
       "transformer --batch 8 --seq 512 --width 512 --heads 8 --layers 4 --dtype bf16"],
    "cpu": ["mlp --batch 2 --width 8 --layers 8", "mlp --batch 16 --width 32 --layers 4",
            "mlp --batch 64 --width 128 --layers 8", "mlp --batch 512 --width 512 --layers 3",
            "mlp --batch 1 --width 1024 --layers 3", "transformer"],
}


class Failed(Exception):
    pass


# (stdout, stderr, exit status) of a command. At its time limit it ends with all processes that it started.
def call(command, timeout=None, env=None):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                               start_new_session=True)
    try:
        return *process.communicate(timeout=timeout), process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"{' '.join(command)}: took longer than {timeout} s")


# The document of `brrr compare`. Losses that differ fail the command, but leave its document.
def compare(program, case, device, seconds, further=(), timeout=None):
    command = [program, "compare", *case.split(), "--device", device, "--steps", "5", "--json", "--time", str(seconds),
               *further]
    out, errors, _ = call(command, timeout)
    document = json.loads(out) if out else {}
    if "rows" not in document:
        raise Failed(f"{' '.join(command)}: {errors.strip()}")
    return document


def write(path, document):
    with open(path, "w") as file:
        json.dump(document, file, indent=1)


# Documents before "fits" was recorded judged by the shares alone, within a factor of 1.25. The rule of
# measure/batch_doubling.cpp, but for the spread of samples, which they lack.
def judgement_of(row):
    doubling = row["batch_doubling"]
    if not row["regime"]:
        return "no verdict"
    if "fits" in doubling or doubling["expected"] is None:  # the samples spread too far
        return doubling["judgement"]

    def alike(expected):
        return max(doubling["ratio"], expected) <= 1.15 * min(doubling["ratio"], expected)
    fits = [regime for regime in ("overhead", "bandwidth", "compute") if alike(doubling["expected_" + regime])]
    if fits == [row["regime"]]:
        return "agrees"
    return "disagrees" if fits and row["regime"] not in fits and not alike(doubling["expected"]) else "undecided"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda", choices=list(CASES))
    parser.add_argument("--time", type=float, default=1, help="seconds of each measurement")
    parser.add_argument("--predictions", action="store_true", help="without twice the batch")
    parser.add_argument("--out")
    options = parser.parse_args()
    documents, counts, errors, again, orders = [], {}, [], [], []
    for case in CASES[options.device]:
        try:
            document = compare(options.program, case, options.device, options.time,
                               [] if options.predictions else ["--double-batch"])
        except Failed as problem:
            sys.exit(str(problem))
        documents.append({"command": case, **document})
        orders.append(document["order_right"])
        if options.out:  # after each case: an interrupted run leaves what it has measured
            write(options.out, {"device": options.device, "documents": documents})
        print(f"\n{case}\n  {document['verdict'] or 'no verdict'}")
        for row in document["rows"]:
            judgement = "" if options.predictions else judgement_of(row)
            counts[judgement] = counts.get(judgement, 0) + 1
            errors.append(abs(row["prediction_error"]))
            again.append(abs((row["at_timed_speed"] or row)["prediction_error"]))
            shares = row["shares"] or {}
            print(f"  {row['mode']:6} {row['step_us']:10.1f} us, predicted {row['prediction_error']:+.0%}  "
                  + (f"{row['regime']:9} " + " ".join(f"{shares[k]:4.0%}" for k in ("overhead", "bandwidth", "compute"))
                     + ("" if options.predictions else f"  {judgement}: {row['batch_doubling']['text']}") if row["regime"] else "; ".join(row["problems"])))
    if not options.predictions:
        print(f"\nverdicts by twice the batch: {counts}")
    print(f"predicted order right: {sum(orders)} of {len(orders)}")
    print(f"prediction error: median {statistics.median(errors):.0%}, worst {max(errors):.0%}")
    print(f"with eager steps predicted for the host's speed during the timing: median {statistics.median(again):.0%}, "
          f"worst {max(again):.0%}")


if __name__ == "__main__":
    main()
