"""Judges the verdicts of brrr on prepared steps by replacing their work, and follows the first advice.

    python3 bench/prepared.py build/release/bin/prepared_steps [--device cpu|cuda] [--only WORD] [--load PROCESSES]
                              [--out FILE.json]

Each step is timed whole and with a part of its work left out, in turn, without brrr's measuring library:

- user: what goes when the step's own code is left out;
- overhead: what stays when the calls work on next to no data;
- compute: what goes when no arithmetic is done on the same bytes;
- inefficient: what goes when a slow kernel's work is done in a better way, if that takes less than two thirds;
- bandwidth: the rest.

The first advice, another mode or another number of threads, is followed in processes of their own: the gain is that
of the whole step, beside the one that `compare` measured.

The largest is the regime. It is undecided where the second is less than 10 points below. The verdict is that of
`compare` on the step's mode; a verdict within 10 points of two regimes agrees with both.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

import verdicts

MARGIN = 0.10
PARTS = {"no own code": "user", "calls": "overhead", "no arithmetic": "compute", "better": "inefficient"}


def shares_of(us):
    whole = us["whole"]
    shares = {name: 0.0 for name in (*PARTS.values(), "bandwidth")}
    for part, name in PARTS.items():
        if part in us:
            shares[name] = min(1.0, us[part] / whole) if part == "calls" else max(0.0, 1 - us[part] / whole)
    if shares["inefficient"] < 1 / 3:
        shares["inefficient"] = 0.0
    # Without arithmetic the calls stay, so what goes is no overhead; of own code the rest is small calls.
    rest = 1 - sum(shares.values())
    shares["overhead" if "no own code" in us else "bandwidth"] += max(0.0, rest)
    return shares


def judge(us):
    shares = shares_of(us)
    ranked = sorted(shares, key=lambda name: -shares[name])
    return (ranked[0] if shares[ranked[0]] - shares[ranked[1]] >= MARGIN else None), shares


def parts_of(program, name, mode, device, seconds, env=None):
    out, errors, status = verdicts.call([program, "parts", str(seconds), name, mode, device], 120, env)
    if status:
        raise verdicts.Failed(errors.strip())
    return {part: float(us) for part, us in (line.split("\t") for line in out.splitlines())}


def verdict_on(program, name, mode, device, seconds):
    document = verdicts.compare(program, name, device, seconds, timeout=300)
    return next(row for row in document["rows"] if row["mode"] == mode), document


# What the first advice said, and what following it gives: {"advice", "said", "got"}; None: it advises no change that is
# followed here.
def follow(program, name, device, seconds, document):
    base, fastest = document["rows"][0], min(document["rows"], key=lambda row: row["step_us"])
    tried = document["tried"][:1]
    if advised := re.match(r"(\w+) is ([\d.]+) times as fast, as measured", base["advice"] or ""):
        mode, env, said, advice = advised[1], {}, float(advised[2]), advised[1]
    elif tried and tried[0]["name"] == "one thread" and tried[0]["gain"] > 1.05:
        mode, env, said, advice = fastest["mode"], {"BRRR_THREADS": "1"}, tried[0]["gain"], tried[0]["name"]
        base = fastest
    else:
        return None
    before, after = [], []
    for _ in range(3):  # processes differ
        before.append(parts_of(program, name, base["mode"], device, seconds)["whole"])
        after.append(parts_of(program, name, mode, device, seconds, {**os.environ, **env})["whole"])
    return {"advice": advice, "said": said, "got": statistics.median(before) / statistics.median(after)}


def agrees(row, judged):
    if row["regime"] is None or judged is None:
        return None
    return judged == row["regime"] or row["shares"][row["regime"]] - row["shares"][judged] < MARGIN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--time", type=float, default=0.3, help="seconds of each measurement")
    parser.add_argument("--only", default="", help="steps whose name or mode has this word")
    parser.add_argument("--load", type=int, default=0, help="processes that compute meanwhile, during verdicts")
    parser.add_argument("--out")
    options = parser.parse_args()
    listed, _, _ = verdicts.call([options.program, "list"], 60)
    results, counts, documents, followed = [], {}, {}, []
    for name, mode in (line.split("\t") for line in listed.splitlines()):
        if options.only not in f"{name} {mode}":
            continue
        try:
            us = parts_of(options.program, name, mode, options.device, options.time)
            judged, shares = judge(us)
            if name not in documents:
                busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(options.load)]
                try:
                    documents[name] = verdict_on(options.program, name, mode, options.device, options.time)[1]
                finally:
                    for process in busy:
                        process.kill()
                found = None if options.load else follow(options.program, name, options.device, options.time,
                                                         documents[name])
                if found:
                    followed.append({"name": name, **found})
                    print(f"{name}: {found['advice']}: said {found['said']:.2f} times as fast, got {found['got']:.2f}")
            row = next(row for row in documents[name]["rows"] if row["mode"] == mode)
        except verdicts.Failed as problem:
            print(f"{name} {mode}: failed: {problem}")
            counts["failed"] = counts.get("failed", 0) + 1
            continue
        same = agrees(row, judged)
        answer = "no verdict" if row["regime"] is None else {True: "agrees", False: "DISAGREES", None: "undecided"}[same]
        counts[answer] = counts.get(answer, 0) + 1
        results.append({"name": name, "mode": mode, "parts_us": us, "judged": judged, "judged_shares": shares,
                        "answer": answer, **{key: row[key] for key in ("regime", "shares", "step_us", "advice",
                                                                      "confidence", "prediction_error")}})
        text = " ".join(f"{key} {value:.0%}" for key, value in shares.items() if value >= 0.005)
        found = " ".join(f"{key} {row['shares'][key]:.0%}" for key in shares if row["shares"][key] >= 0.005) \
            if row["shares"] else ""
        print(f"{answer:10} {name} {mode}: {us['whole']:.1f} us; replaced: {judged}: {text}; "
              f"brrr ({row['step_us']:.1f} us): {row['regime']}: {found}", flush=True)
        if options.out:
            verdicts.write(options.out, {"device": options.device, "load": options.load, "counts": counts, "steps": results, "followed": followed})
    print(f"verdicts by replaced work: {counts} of {sum(counts.values())}")
    helped = sum(each["got"] - 1 >= 0.8 * (each["said"] - 1) for each in followed)
    slower = sum(each["got"] < 0.98 for each in followed)
    print(f"advice followed: {helped} of {len(followed)} gain at least 0.8 times what was said; {slower} are slower")
    sys.exit(1 if counts.get("failed") else 0)


if __name__ == "__main__":
    main()
