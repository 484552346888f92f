"""G1-G6 on a machine with a GPU: `python -m bench.elastic.gpu [G1 ...]`. Prints figures, target and the anchor.

Needs torch with CUDA. G1 and G2 use 18 GB of state; `--gigabytes` makes it smaller.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.elastic.common import median, show


def _state(gigabytes: float) -> list[Any]:
    import torch

    return [torch.randn(int(gigabytes * 1e9 / 4 / 64), device="cuda") for _ in range(64)]


def g1(gigabytes: float) -> bool:
    """The training thread waits only for the copy within the device."""
    import torch

    state = _state(gigabytes)
    copies = [torch.empty_like(tensor) for tensor in state]
    stalls = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        torch._foreach_copy_(copies, state)
        torch.cuda.synchronize()
        stalls.append((time.perf_counter() - begun) * 1000)
    figures = f"{median(stalls):.1f} ms for {gigabytes:.0f} GB (flash checkpoint 200-500 ms)"
    return show("G1", "snapshot stall, device to device", figures, "15 ms", met=median(stalls) <= 15)


def g2(gigabytes: float) -> bool:
    """The copy goes to pinned memory on a side stream while matrix products run."""
    import torch

    state = _state(gigabytes)
    pinned = [torch.empty(tensor.shape, pin_memory=True) for tensor in state]
    work = torch.randn(4096, 4096, device="cuda")

    def products(count: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            work @ work
        torch.cuda.current_stream().synchronize()
        return time.perf_counter() - begun

    products(20)
    calm = products(200)
    side = torch.cuda.Stream()
    begun = time.perf_counter()
    with torch.cuda.stream(side):
        for target, source in zip(pinned, state, strict=True):
            target.copy_(source, non_blocking=True)
    busy = products(200)
    side.synchronize()
    spent = time.perf_counter() - begun
    slower = 100 * (busy / calm - 1)
    figures = f"{spent:.2f} s for {gigabytes:.0f} GB, compute {slower:+.1f} % meanwhile"
    return show("G2", "the same in host memory", figures, "0.45 s, 3 %", met=spent <= 0.45 and slower <= 3)


def g3() -> bool:
    """Processes that share the GPU, gloo with CUDA tensors, one killed: the runtime itself."""
    from bench.elastic.recovery import recovery_times

    met = True
    for workers in (2, 4):
        pauses = recovery_times(workers, 10, "--device", "cuda", "--mode", "fast", lease=5.0)
        figures = f"p50 {median(pauses):.0f} ms of {len(pauses)} kills"
        met &= show("G3", f"SIGKILL 1 of {workers} on one GPU", figures, "120 ms", met=median(pauses) <= 120)
    return met


def _replacement(path: str, channel: Any) -> None:
    channel.recv()
    begun = time.perf_counter()
    import torch

    torch.cuda.init()
    context = time.perf_counter()
    held = torch.from_file(path, shared=True, size=Path(path).stat().st_size // 4, dtype=torch.float32)
    torch.cuda.cudart().cudaHostRegister(held.data_ptr(), held.numel() * 4, 0)
    on_device = held.to("cuda", non_blocking=True)
    (on_device * 2).sum().item()
    channel.send((context - begun, time.perf_counter() - begun))


def g4(gigabytes: float) -> bool:
    """A replacement forked from a process with torch imported takes the state from shared memory."""
    import torch

    path = f"/dev/shm/bench-elastic-{os.getpid()}"
    torch.from_file(path, shared=True, size=int(gigabytes * 1e9 / 4), dtype=torch.float32).fill_(1)
    try:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch"])
        ours, theirs = context.Pipe()
        process = context.Process(target=_replacement, args=(path, theirs))
        process.start()
        time.sleep(15)
        ours.send("go")
        device, total = ours.recv()
        process.join()
    finally:
        Path(path).unlink()
    figures = f"{total:.2f} s ({device:.2f} s of it the context) for {gigabytes:.0f} GB"
    return show("G4", "replacement trains from shared memory", figures, "2.5 s", met=total <= 2.5)


def g5() -> bool:
    """A GPT of 124 M parameters alone: the runtime's step against a bare loop."""
    import torch

    from torchyard import elastic

    class Data:
        def __len__(self) -> int:
            return 8 * 140

        def __getitem__(self, index: int) -> Any:
            return tokens[index % 64]

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50304, 768), torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    ).cuda()
    tokens = torch.randint(0, 50304, (64, 512))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(batch: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return model(batch.cuda(non_blocking=True)).float().pow(2).mean()

    def bare() -> float:
        times = []
        for step in range(60):
            optimizer.zero_grad()
            loss_of(torch.stack([tokens[(step * 8 + row) % 64] for row in range(8)])).backward()
            optimizer.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter())
        return median([b - a for a, b in pairwise(times[10:])]) * 1000

    first = bare()
    times = []
    for _ in elastic.join().train(model, optimizer, loss=loss_of, data=Data(), batch=8, mode="fast"):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
    ours = median([b - a for a, b in pairwise(times[10:])]) * 1000
    plain = (first + bare()) / 2
    extra = 100 * (ours / plain - 1)
    figures = f"{ours:.2f} ms a step, bare loop {plain:.2f} ms: {extra:+.1f} %"
    return show("G5", "fast mode on a 124 M GPT", figures, "1 %", met=extra <= 1)


def g6() -> bool:
    import torch
    import torch.distributed as dist

    spent = []
    for attempt in range(4):
        begun = time.perf_counter()
        store = dist.HashStore()
        group = dist.ProcessGroupNCCL(store, 0, 1, timedelta(seconds=30))
        group.allreduce([torch.ones(1000, device="cuda")]).wait()
        torch.cuda.synchronize()
        if attempt:
            spent.append(time.perf_counter() - begun)
        group.abort()
    figures = f"{median(spent):.2f} s (floor 0.52 s)"
    return show("G6", "NCCL abort and new group, one rank", figures, "0.7 s", met=median(spent) <= 0.7)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("bars", nargs="*", default=["G1", "G2", "G3", "G4", "G5", "G6"])
    parser.add_argument("--gigabytes", type=float, default=18.0)
    given = parser.parse_args()
    size = given.gigabytes
    bars = {"G1": lambda: g1(size), "G2": lambda: g2(size), "G3": g3, "G4": lambda: g4(size), "G5": g5, "G6": g6}
    met = [bars[name]() for name in given.bars]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
