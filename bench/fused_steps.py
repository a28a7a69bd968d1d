"""Training steps of MLPs, brrr's graph and fused modes beside JAX and PyTorch in the same run. A peer that is not installed
is left out.

    python3 bench/fused_steps.py build/release/bin/brrr [--device cuda] [--sizes tiny,small] [--time SECONDS] [--out FILE.json]
    python3 bench/fused_steps.py build/release/bin/brrr --device cpu [--threads 1] ...

On the CPU brrr and its peers run on the same processors, as many as there are threads, each of a core of its own.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from sizes import CPU_SIZES, SIZES  # noqa: E402

ON = {  # by device: sizes, arguments by precision, peers by mode
    "cuda": (list(SIZES), {"tf32": ["--tf32"], "bf16": ["--dtype", "bf16"]},
             {"jit": "JAX jit", "graph": "PyTorch, one graph", "compiled": "PyTorch compiled, one graph"}),
    "cpu": (CPU_SIZES, {"f32": []},
            {"jit": "JAX jit", "eager": "PyTorch eager", "compiled": "PyTorch compiled"}),
}


def one_of_each_core(count):
    """`count` processors of this process, no two of one core."""
    chosen, taken = [], set()
    for processor in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        core = siblings.read_text() if siblings.exists() else processor
        if core not in taken:
            taken.add(core)
            chosen.append(processor)
    if len(chosen) < count:
        sys.exit(f"--threads: {count} need as many cores, and there are {len(chosen)}")
    return chosen[:count]


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def ours(options, size, precision, mode):
    batch, width, layers = SIZES[size]
    command = [options.program, "train", "mlp", "--batch", str(batch), "--width", str(width), "--layers", str(layers),
               *ON[options.device][1][precision], "--mode", mode, "--device", options.device, "--steps", "5",
               "--time", str(options.time), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    row = json.loads(done.stdout)
    return {"name": f"steps/{size} {precision} brrr {mode}", "device": options.device, "value": row["step_us"], "unit": "us",
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
    parser.add_argument("--device", choices=list(ON), default="cuda")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU")
    parser.add_argument("--sizes")
    parser.add_argument("--time", type=float, default=0.5, help="seconds of each of brrr's measurements")
    parser.add_argument("--out")
    options = parser.parse_args()
    sizes, precisions, peers = ON[options.device]
    results, machine = [], {}
    if options.device == "cpu":
        processors = one_of_each_core(options.threads)
        machine |= {"cpu": cpu_model(), "threads": options.threads, "processors": processors}
        os.sched_setaffinity(0, processors)
        os.environ["BRRR_THREADS"] = str(options.threads)
    torch_modes = ",".join(mode for mode in peers if mode != "jit")
    print("us a step | brrr graph | brrr fused | " + " | ".join(peers.values()))
    for size in options.sizes.split(",") if options.sizes else sizes:
        for precision in precisions:
            results += [ours(options, size, precision, mode) for mode in ("graph", "fused")]
        for found in (peer("jax_steps.py", "--device", options.device, "--sizes", size),
                      peer("torch_steps.py", "--device", options.device, "--modes", torch_modes, "--sizes", size)):
            results += found["results"]
            machine |= found["machine"]
        if options.out:  # after each size: an interrupted run leaves what it has measured
            pathlib.Path(options.out).write_text(json.dumps({"results": results, "machine": machine}, indent=1) + "\n")
        values = {row["name"]: row["value"] for row in results}
        for precision in precisions:
            names = [f"steps/{size} {precision} {mode}" for mode in ("brrr graph", "brrr fused", *peers)]
            cells = [f"{values[name]:.1f}" if name in values else "-" for name in names]
            print(" | ".join([f"{size} {precision}", *cells]), flush=True)


if __name__ == "__main__":
    main()
