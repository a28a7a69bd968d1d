"""How the steps of PyTorch are captured in a CUDA graph and timed."""

import time

import torch


def captured(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def synchronize():
    if torch.cuda.is_initialized():  # a step on the CPU has nothing to wait for
        torch.cuda.synchronize()


def seconds_per_call(call, samples=60, sample_seconds=0.02, budget_seconds=0.5, warm_seconds=0.5):
    """The median of windows of many calls, each until the device is done with the last."""

    def window(calls):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        return (time.perf_counter() - start) / calls

    window(5)
    each = window(5)
    calls = max(1, round(sample_seconds / each))
    begin = time.perf_counter()
    while time.perf_counter() - begin < warm_seconds:
        window(calls)
    windows = max(5, min(samples, int(budget_seconds / (each * calls))))
    return sorted(window(calls) for _ in range(windows))[windows // 2]
