"""G1 to G6 on a machine with a GPU: `python -m bench.elastic.gpu [G1 ...]` prints figures, target and reference.

Needs torch with CUDA. G1 and G2 use 18 GB of state; `--gigabytes` makes it smaller. C11, C16, C17 and C18 are the
benchmarks of that name with the model on the GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.elastic import common
from bench.elastic.common import median, show, workspace
from bench.elastic.frameworks import c17, c18
from bench.elastic.overhead import c16
from bench.elastic.recovery import c11
from torchyard.elastic.chaos import ChaosJob, kill_randomly
from torchyard.elastic.run import RunOptions


def _state(gigabytes: float) -> list[Any]:
    import torch

    return [torch.randn(int(gigabytes * 1e9 / 4 / 64), device="cuda") for _ in range(64)]


class _StagedStates:
    """A stager for a state on the GPU, after the first two states have allocated and pinned its files."""

    def __init__(self, gigabytes: float) -> None:
        from torchyard.elastic.checkpoint.staging import Stager
        from torchyard.elastic.world.state import Snapshot

        self.folder = tempfile.TemporaryDirectory(prefix="bench-elastic-", dir="/dev/shm")
        self.snapshot = Snapshot("bench", _state(gigabytes))
        self.stager = Stager(Path(self.folder.name), "bench")
        self.step = 0
        begun = time.perf_counter()
        for _ in range(2):
            self.stage()
            self.stager.wait()
        self.first = time.perf_counter() - begun

    def stage(self) -> None:
        self.step += 1
        self.stager.stage(self.step, self.snapshot)
        self.stager.synchronize_staging()


def g1(states: _StagedStates, gigabytes: float) -> bool:
    """How long the training thread and its stream wait when a state is staged."""
    import torch

    stalls = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        states.stage()
        torch.cuda.current_stream().synchronize()
        stalls.append((time.perf_counter() - begun) * 1000)
        states.stager.wait()
    figures = f"{median(stalls):.1f} ms for {gigabytes:.0f} GB (flash checkpoint 200-500 ms); "
    figures += f"allocating and pinning memory for two states took {states.first:.0f} s once"
    return show("G1", "snapshot stall", figures, "15 ms", met=median(stalls) <= 15)


def g2(states: _StagedStates, gigabytes: float) -> bool:
    """The time until the state is complete in host memory, while matrix products run."""
    import torch

    work = torch.randn(4096, 4096, device="cuda")

    def products(count: int) -> float:
        torch.cuda.current_stream().synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            work @ work
        torch.cuda.current_stream().synchronize()
        return (time.perf_counter() - begun) / count

    products(50)
    idle = products(100)
    seconds, busy = [], []
    for _ in range(5):
        begun = time.perf_counter()
        states.stage()
        torch.cuda.current_stream().synchronize()
        while (staging := states.stager.staging) or not busy:
            if staging:
                busy.append(products(10))
        states.stager.wait()
        seconds.append(time.perf_counter() - begun)
    slower = 100 * (median(busy) / idle - 1)
    figures = f"{median(seconds):.2f} s for {gigabytes:.0f} GB, compute {slower:+.1f} % meanwhile"
    return show("G2", "the same in host memory", figures, "0.45 s, 3 %", met=median(seconds) <= 0.45 and slower <= 3)


def g3(device: str = "cuda") -> bool:
    """The runtime with processes that share the GPU and gloo with CUDA tensors; one is killed."""
    from bench.elastic.recovery import recovery_times

    met = True
    for workers in (2, 4):
        pauses = recovery_times(workers, 10, "--device", device, "--mode", "fast", lease=5.0)
        figures = f"p50 {median(pauses):.0f} ms of {len(pauses)} kills"
        met &= show("G3", f"SIGKILL 1 of {workers} on one GPU", figures, "120 ms", met=median(pauses) <= 120)
    return met


def g4(gigabytes: float, device: str = "cuda", kills: int = 2) -> bool:
    """The only worker is killed: its replacement loads the state from shared memory and computes the next step."""
    hidden = int(gigabytes * 1e9 / 12 / 795)
    sizes = ("--hidden", str(hidden), "--batch", "8", "--micro-batches", "1", "--records", "2000", "--device", device)
    with workspace() as folder:
        mode = ("--mode", "fast", "--snapshot-every", "1", "--epochs", "2000")
        seconds = []
        with ChaosJob(common.options(folder, *sizes, *mode, workers=1, lease=5.0)) as chaos:
            for _ in range(kills):
                step = chaos.wait_until(lambda status: status["phase"] == "Running", seconds=240, every=0.2)["step"]
                chaos.wait_until(lambda status, first=step: status["step"] >= first + 4, seconds=240, every=0.2)
                victim = chaos.wait_until(lambda status: bool(status["world"]), every=0.2)["world"][0]
                moment = time.time()
                chaos.signal_worker(victim)
                later = _first_step_of_another(folder, victim, moment, patience=120)
                seconds.append(later - moment)
            formed = [e["message"] for e in chaos.request("/events") or [] if e["reason"] == "WorldFormed"]
    print(f"     {formed[-1]}" if formed else "     no world was formed")
    figures = (
        f"{median(seconds):.2f} s (of {len(seconds)}: {', '.join(f'{s:.2f}' for s in seconds)}) for {gigabytes:.0f} GB"
    )
    return show("G4", "replacement trains from shared memory", figures, "2.5 s", met=median(seconds) <= 2.5)


def _first_step_of_another(folder: Path, victim: str, moment: float, *, patience: float) -> float:
    while time.time() < moment + patience:
        rows = [row["at"] for row in common.steps(folder) if row["at"] > moment and row["who"] != victim]
        if rows:
            return min(rows)
        time.sleep(0.2)
    raise TimeoutError(f"no worker continued within {patience} s")


def g5() -> bool:
    """A GPT of 124 M parameters on one worker: the runtime's step against a bare loop, for two batch sizes."""
    return all([_gpt(32, 1024, rounds=8), _gpt(8, 512, rounds=20)])


def _gpt(rows: int, length: int, *, rounds: int, run: int = 10) -> bool:
    import torch

    from torchyard import elastic

    class Data:
        def __len__(self) -> int:
            return rows * run * (rounds + 2)

        def __getitem__(self, index: int) -> Any:
            return tokens[index % 64]

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50304, 768), torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    ).cuda()
    tokens = torch.randint(0, 50304, (64, length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(batch: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return model(batch.cuda(non_blocking=True)).float().pow(2).mean()

    def bare() -> None:
        optimizer.zero_grad()
        loss_of(torch.stack([tokens[row % 64] for row in range(rows)])).backward()
        optimizer.step()

    training = iter(elastic.join().train(model, optimizer, loss=loss_of, data=Data(), batch=rows, mode="fast"))

    def timed(step: Any) -> list[float]:
        marks = []
        for _ in range(run):
            step()
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        return [after - before for before, after in pairwise(marks)]

    # A few steps of each alternate: the machine drifts by more than the difference.
    pairs = [(timed(bare), timed(lambda: next(training))) for _ in range(rounds + 1)][1:]
    plain, mine = (median([gap for pair in pairs for gap in pair[index]]) * 1000 for index in (0, 1))
    extra = 100 * (mine / plain - 1)
    figures = (
        f"{mine:.2f} ms a step, bare loop {plain:.2f} ms: {extra:+.1f} % in {rounds} rounds of {run - 1} steps each"
    )
    return show("G5", f"fast mode on a 124 M GPT, {rows} x {length} tokens", figures, "1 %", met=extra <= 1)


def g6() -> bool:
    """The runtime aborts in a thread, because nothing waits for it; the time with a wait is printed too."""
    import torch
    import torch.distributed as dist

    from torchyard.elastic.world.process_group import abort_in_background, nccl_group

    def create_group() -> Any:
        group = nccl_group(dist.HashStore(), 0, 1)
        group.allreduce([torch.ones(1000, device="cuda")]).wait()
        torch.cuda.synchronize()
        return group

    def seconds(abort: Callable[[Any], None]) -> float:
        group, times = create_group(), []
        for _ in range(5):
            begun = time.perf_counter()
            abort(group)
            group = create_group()
            times.append(time.perf_counter() - begun)
        return median(times)

    in_thread, waited = seconds(abort_in_background), seconds(lambda group: group.abort())
    figures = f"{in_thread:.2f} s with the abort in a thread, as in the runtime; {waited:.2f} s with a wait"
    return show("G6", "NCCL abort and new group, one rank", figures, "0.7 s", met=in_thread <= 0.7)


SHARED = """
import sys, torch, torch.distributed as dist
from torchyard.elastic.world.process_group import nccl_group
rank = int(sys.argv[1])
try:
    group = nccl_group(dist.FileStore(sys.argv[2], 2), rank, 2)
    group.allreduce([torch.ones(1000, device="cuda")]).wait()
    torch.cuda.synchronize()
    print("formed")
except Exception as error:
    print(next((line for line in str(error).splitlines() if "GPU" in line), str(error).splitlines()[0]).strip()[:160])
"""


def shared() -> bool:
    """Without a target: why NCCL with several ranks cannot be tested on a machine with one GPU."""
    with workspace() as folder:
        command = [sys.executable, "-c", SHARED]
        ranks = [
            subprocess.Popen([*command, str(rank), str(folder / "store")], stdout=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        outputs = []
        for rank in ranks:
            try:
                outputs.append(rank.communicate(timeout=90)[0].strip())
            except subprocess.TimeoutExpired:
                rank.kill()
                outputs.append("no output within 90 s")
    return show("S3", "NCCL, two ranks on one GPU", outputs[0], "refused by NCCL", met=None)


def strict(device: str = "cuda") -> bool:
    """Strict mode gives one model for every number of workers on a GPU too, and refuses nondeterministic kernels."""
    import torch

    from torchyard.elastic import ElasticError, join

    models = []
    for workers in (1, 2, 4):
        with (
            workspace() as folder,
            ChaosJob(
                common.options(folder, "--device", device, "--records", "4000", "--epochs", "1", workers=workers)
            ) as chaos,
        ):
            models.append(chaos.wait(300).message.split()[-1])
    same = show(
        "S1",
        "strict mode, 1, 2 and 4 workers",
        f"{len(set(models))} model(s) {models[0][:12]}",
        "1",
        met=len(set(models)) == 1,
    )
    net = torch.nn.Conv2d(1, 1, 3).to(device)
    data = torch.utils.data.TensorDataset(torch.randn(8, 1, 8, 8))

    def loss_of(batch: Any) -> Any:
        large = torch.nn.functional.interpolate(net(batch[0].to(device)), size=(9, 7), mode="bicubic")
        return large.pow(2).mean()

    try:
        list(join().train(net, torch.optim.SGD(net.parameters()), loss=loss_of, data=data, batch=4))
        outputs = "trained"
    except ElasticError as error:
        outputs = f"{error.code}: {error.message[:80]}"
    finally:
        torch.use_deterministic_algorithms(False)
    return same & show(
        "S2", "a kernel without a deterministic form", outputs, "refused", met="NotDeterministic" in outputs
    )


MODELS = Path(__file__).parent / "gpu_models.py"


def identity(device: str = "cuda", *, models: Sequence[str], kills: int = 4) -> bool:
    """Models of usual kinds: alone, and with two and three workers that are killed, one sha256."""
    met = True
    for model in models:
        program = [sys.executable, str(MODELS), model, "--device", device]
        alone = subprocess.run(program, capture_output=True, text=True, check=True, timeout=200)
        digests, killed = [alone.stdout.split("digest ")[1].split()[0]], []
        for workers in (2, 3):
            with workspace() as folder:
                command = (*program, "--hold", str(folder / "go"))
                settings = RunOptions(command, folder / "job", workers=workers, max_workers=workers, quiet=True)
                with ChaosJob(settings) as chaos:
                    chaos.wait_until(lambda status: status["step"] >= 2, seconds=200, every=0.1)
                    done = kill_randomly(chaos, seed=workers, kills=kills, pause=(0.1, 1.0))
                    killed.append(f"{done['worker']} worker and {done['coordinator']} coordinator kills")
                    (folder / "go").touch()
                    digests.append(chaos.wait(200).message.split("digest ")[-1].split()[-1])
        figures = f"{len(set(digests))} model(s) {', '.join(digest[:12] for digest in digests)}; {'; '.join(killed)}"
        label = f"{model} on {device}, strict mode: alone, 2 and 3 workers"
        met &= show("S4", label, figures, "1", met=len(set(digests)) == 1)
    return met


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("benchmarks", nargs="*", default=["G1", "G2", "G3", "G4", "G5", "G6", "strict", "shared"])
    parser.add_argument("--gigabytes", type=float, default=18.0)
    parser.add_argument("--device", default="cuda", help="cpu runs all but G1, G2, G5 and G6 without a GPU")
    parser.add_argument("--rounds", type=int, default=2, help="of C16 and C17")
    parser.add_argument("--only-share", action="store_true", help="C16 without a run that compares nothing")
    parser.add_argument("--seconds", type=float, default=45, help="how long C11 kills workers")
    parser.add_argument("--fleets", type=int, nargs="+", default=[5, 4], help="numbers of workers for C11")
    parser.add_argument("--models", nargs="+", default=["convolutions", "gpt", "lstm"], help="for identity")
    parser.add_argument("--packages", nargs="+", default=["transformers", "lightning"], help="for C17")
    parser.add_argument("--keep", type=Path, help="a directory for what C11 has recorded")
    args = parser.parse_args()
    size, device = args.gigabytes, args.device
    states = _StagedStates(size) if {"G1", "G2"} & set(args.benchmarks) else None
    met = [
        benchmark(states, size)
        for name, benchmark in (("G1", g1), ("G2", g2))
        if name in args.benchmarks and states is not None
    ]
    if states is not None:
        states.stager.wait()
        states.folder.cleanup()
    on_device = ("--device", device)
    larger = (*on_device, "--features", "2048", "--hidden", "2048", "--records", "4000")
    remaining = {
        "C11": lambda: c11(*on_device, seconds=args.seconds, targets={5.0: 97.0}, fleets=args.fleets, keep=args.keep),
        "C16": lambda: c16(*larger, rounds=args.rounds, with_reference=not args.only_share),
        "C17": lambda: c17(device, rounds=args.rounds, packages=args.packages),
        "C18": lambda: c18(device),
        "G3": lambda: g3(device),
        "G4": lambda: g4(size, device),
        "G5": g5,
        "G6": g6,
        "identity": lambda: identity(device, models=args.models),
        "strict": lambda: strict(device),
        "shared": shared,
    }
    for name in (name for name in remaining if name in args.benchmarks):
        try:
            met.append(remaining[name]())
        except Exception as error:  # run the other benchmarks all the same
            traceback.print_exc()
            met.append(show(name, "did not run", repr(error)[:200], "", met=False))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
