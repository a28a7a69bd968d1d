"""Training steps of MLPs on a GPU, brrr's graph and fused modes beside JAX and PyTorch in the same run. A peer that is not
installed is left out.

    python3 bench/fused_steps.py build/release/bin/brrr [--sizes tiny,small] [--time SECONDS] [--out FILE.json]
"""

import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from sizes import SIZES  # noqa: E402

PRECISIONS = {"tf32": ["--tf32"], "bf16": ["--dtype", "bf16"]}
PEERS = {"jit": "JAX jit", "graph": "PyTorch, one graph", "compiled": "PyTorch compiled, one graph"}


def ours(program, size, precision, mode, seconds):
    batch, width, layers = SIZES[size]
    command = [program, "train", "mlp", "--batch", str(batch), "--width", str(width), "--layers", str(layers),
               *PRECISIONS[precision], "--mode", mode, "--device", "cuda", "--steps", "5", "--time", str(seconds), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    row = json.loads(done.stdout)
    return {"name": f"steps/{size} {precision} brrr {mode}", "device": "cuda", "value": row["step_us"], "unit": "us",
            "least": row["step_us_min"], "most": row["step_us_max"], "kernels": row["kernels_per_step"]}


def peer(script, *arguments):
    path = pathlib.Path(__file__).parent / "peers" / script
    done = subprocess.run([sys.executable, path, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0 or not done.stdout:
        print(f"{script}: left out", file=sys.stderr)
        return {"results": [], "machine": {}}
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--time", type=float, default=0.5, help="seconds of each of brrr's measurements")
    parser.add_argument("--out")
    options = parser.parse_args()
    results, machine = [], {}
    print("us a step | brrr graph | brrr fused | " + " | ".join(PEERS.values()))
    for size in options.sizes.split(","):
        for precision in PRECISIONS:
            results += [ours(options.program, size, precision, mode, options.time) for mode in ("graph", "fused")]
        for found in (peer("jax_steps.py", "--sizes", size),
                      peer("torch_steps.py", "--modes", "graph,compiled", "--sizes", size)):
            results += found["results"]
            machine.update(found["machine"])
        if options.out:  # after each size: an interrupted run leaves what it has measured
            pathlib.Path(options.out).write_text(json.dumps({"results": results, "machine": machine}, indent=1) + "\n")
        values = {row["name"]: row["value"] for row in results}
        for precision in PRECISIONS:
            names = [f"steps/{size} {precision} {mode}" for mode in ("brrr graph", "brrr fused", *PEERS)]
            cells = [f"{values[name]:.1f}" if name in values else "-" for name in names]
            print(" | ".join([f"{size} {precision}", *cells]), flush=True)


if __name__ == "__main__":
    main()
