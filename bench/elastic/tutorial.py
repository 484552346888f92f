"""C14: ElasticDL's tutorial program, unmodified, on real MNIST: alone, and with workers killed and added."""

from __future__ import annotations

import importlib
import importlib.util
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.elastic.common import show, workspace
from torchyard.elastic.agent.agent import COMPAT
from torchyard.elastic.chaos import ChaosJob, count_applied_records
from torchyard.elastic.run import RunOptions

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "elastic" / "elasticdl_mnist.py"
STANDIN = ROOT / "tests" / "elastic" / "programs" / "standin"
"""For machines without torchvision: its list of image files. The program stays as it is."""


MNIST = ROOT / "examples" / "mnist" / "data" / "mnist"


def _write_images(root: Path) -> None:
    """One PNG per image in a folder per digit, as the tutorial's download has them."""
    cv2, numpy = importlib.import_module("cv2"), importlib.import_module("numpy")
    for part, kind, count in (("training", "train", 6000), ("testing", "t10k", 1000)):
        pixels = lzma.decompress((MNIST / f"{kind}-images-idx3-ubyte.xz").read_bytes())[16:]
        labels = lzma.decompress((MNIST / f"{kind}-labels-idx1-ubyte.xz").read_bytes())[8:]
        for digit in range(10):
            (root / part / str(digit)).mkdir(parents=True)
        for number in range(count):
            image = numpy.frombuffer(pixels[784 * number : 784 * (number + 1)], numpy.uint8).reshape(28, 28)
            cv2.imwrite(str(root / part / str(labels[number]) / f"{number}.png"), image)


def _result(output: str) -> tuple[str, float]:
    return re.findall(r"weights (\w+)", output)[0], float(re.findall(r"accuracy ([\d.]+)", output)[0])


def c14() -> bool:
    if importlib.util.find_spec("cv2") is None:
        return show("C14", "the tutorial's program", "needs cv2, which is not installed", "same model", met=None)
    standin = [] if importlib.util.find_spec("torchvision") else [str(STANDIN)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(COMPAT), *standin, os.environ.get("PYTHONPATH", "")])
    os.environ |= {"WORKER_NUM": "2", "OMP_NUM_THREADS": "1"}
    with workspace() as folder:
        _write_images(folder / "png")
        data = ["--training_data", f"{folder}/png/training", "--validation_data", f"{folder}/png/testing"]
        command = [sys.executable, str(PROGRAM), *data, "--num_epochs", "2", "--batch_size", "32"]
        undisturbed = _result(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        with ChaosJob(
            RunOptions(tuple(command), folder / "job", workers=2, max_workers=3, lease=5.0, quiet=True)
        ) as chaos:
            chaos.wait_step(20)
            first = sorted(chaos.workers())[0]
            chaos.signal_worker(first)
            chaos.wait_until(lambda status: first not in status["world"] and len(status["world"]) == 2, every=0.2)
            # A step has two batches: a third worker stands by until one of the two is gone.
            chaos.request("/scale", {"workers": 3})
            status = chaos.wait_until(lambda status: len(status["workers"]) == 3, every=0.2)
            added = next(name for name in status["workers"] if name not in status["world"])
            chaos.signal_worker(status["world"][0])
            chaos.wait_until(lambda status: added in status["world"], every=0.2)
            stop = chaos.wait(400)
        disturbed = _result("\n".join(chaos.output)) if stop.cause == "finished" else ("", 0.0)
        counts = count_applied_records(folder / "job")
    once = len(counts) == 12000 and set(counts.values()) == {1}
    figures = f"accuracy {disturbed[1]:.4f} (alone {undisturbed[1]:.4f})"
    figures += ", weights equal" if disturbed == undisturbed else ", weights DIFFER"
    figures += ", every record once" if once else ", records lost or doubled"
    return show(
        "C14",
        "two workers, one killed and replaced, one added, one killed",
        figures,
        "same model",
        met=disturbed == undisturbed and once,
    )
