"""Training steps of transformers in bf16: brrr's fused mode before and after PyTorch with its fused attention, compiled,
in one CUDA graph.

    python3 bench/transformer_steps.py build/release/bin/brrr [--shapes 8x512x512x8x4,...] [--mode max-autotune|default]
                                       [--time SECONDS] [--out FILE.json]

A shape is batch x rows x width x heads x layers.
"""

import argparse
import json
import pathlib
import subprocess
import sys

SHAPES = ["8x512x512x8x4", "8x1024x1024x16x12", "4x2048x1024x8x4", "16x256x768x12x6"]
NAMES = ["--batch", "--seq", "--width", "--heads", "--layers"]


def ours(options, shape):
    sizes = [part for name, value in zip(NAMES, shape.split("x")) for part in (name, value)]
    command = [options.program, "train", "transformer", *sizes, "--dtype", "bf16", "--mode", "fused", "--device", "cuda",
               "--steps", "5", "--time", str(options.time), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    row = json.loads(done.stdout)
    return {"name": f"transformer/{shape} bf16 brrr fused", "device": "cuda", "value": row["step_us"], "unit": "us",
            "least": row["step_us_min"], "most": row["step_us_max"], "kernels": row["kernels_per_step"]}


def peer(options, shape):
    path = pathlib.Path(__file__).parent / "peers" / "torch_transformer.py"
    done = subprocess.run([sys.executable, path, "--shape", shape, "--mode", options.mode], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0 or not done.stdout:
        print(f"{path.name} {shape}: left out", file=sys.stderr)
        return {"results": [], "machine": {}}
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--mode", choices=["max-autotune", "default"], default="max-autotune", help="of torch.compile")
    parser.add_argument("--time", type=float, default=1.0, help="seconds of each of brrr's measurements")
    parser.add_argument("--out")
    options = parser.parse_args()
    results, machine = [], {"mode": options.mode}
    print("us a step | brrr before, after | PyTorch, flash | PyTorch, cuDNN")
    for shape in options.shapes.split(","):
        before = ours(options, shape)
        found = peer(options, shape)
        after = ours(options, shape)
        results += [before, *found["results"], after]
        machine |= found["machine"]
        if options.out:  # after each shape: an interrupted run leaves what it has measured
            pathlib.Path(options.out).write_text(json.dumps({"results": results, "machine": machine}, indent=1) + "\n")
        values = {row["name"].split()[-1]: f"{row['value']:.0f}" for row in found["results"]}
        cells = [f"{before['value']:.0f}, {after['value']:.0f}", values.get("flash", "-"), values.get("cudnn", "-")]
        print(" | ".join([shape, *cells]), flush=True)


if __name__ == "__main__":
    main()
