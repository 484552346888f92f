"""Records a day with jobs in a real terminal (tmux): `python tools/record_walk.py --output docs/walks/plane.txt`.

A script is run, the terminal is closed while it trains, and another terminal finds the job again, reads its log, stops
it, runs it with another argument, compares both and lists what has ended. Without --kubeconfig it happens on a plane
that the tool starts; with it, on that cluster, whose pods need --image, an image with Python.

The tool fails if a step does not print what it must. `tests/documents/test_walks.py` runs it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """\
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=600)
options = parser.parse_args()
for step in range(1, options.steps + 1):
    print(f"step {step}/{options.steps} loss={options.lr / step:.4f}", flush=True)
    time.sleep(0.2)
"""
PROMPT = "$"
SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Step:
    """A command, the answer to its question, and what the terminal must show; `ends`: it returns by itself."""

    command: str
    shows: str
    answer: str = ""
    ends: bool = True


def steps(image: str) -> tuple[list[Step], list[Step]]:
    """What is typed in the first terminal, which is closed, and in the second."""
    options = f" --image {image}" if image else ""
    first = [
        Step("cat train.py", r"parser\.add_argument"),
        Step(f"yard run train.py --name night{options} -- --lr 0.1", r"step 3/600 loss", answer="y", ends=False),
    ]
    second = [
        Step("yard ps", r"night +PyTorchJob +Running +1/1"),
        Step("yard logs night --tail 2", r"\[master-0\] step \d+/600"),
        Step("yard why night", r"PyTorchJob night is Running"),
        Step("yard stop night", r"night suspended; `yard resume night` starts it again"),
        Step("yard ps", r"night +PyTorchJob +Suspended"),
        Step("yard rerun night --name morning -- --lr 0.5 --steps 5", r"morning Succeeded"),
        Step("yard compare night morning", r"--lr +0\.1 +0\.5"),
        Step("yard delete night", r"night deleted"),
        Step("yard history", r"morning +PyTorchJob +Succeeded +0 "),
    ]
    return first, second


class Terminal:
    """A terminal of 110 columns in a tmux server of its own."""

    def __init__(self, socket: str, folder: Path, environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-L", socket, "-f", "/dev/null"]
        words = [f"{name}={value}" for name, value in environment.items()]
        shell = shlex.join(["env", *words, "bash", "--norc", "--noprofile"])
        self._run("new-session", "-d", "-x", "110", "-y", "50", "-s", "walk", "-c", str(folder), shell)
        self._run("set-option", "-g", "history-limit", "50000")
        self._wait(lambda text: text.strip() == PROMPT, "a prompt")

    def do(self, step: Step) -> None:
        """Type a command and wait for what it must show."""
        before = len(self.text().splitlines())
        self._type(step.command)
        if step.answer:
            self._wait(lambda text: "Continue?" in text, "the question")
            self._type(step.answer)
        self._wait(
            lambda text: (
                bool(re.search(step.shows, "\n".join(text.splitlines()[before:])))
                and (not step.ends or text.splitlines()[-1].strip() == PROMPT)
            ),
            f"{step.shows!r} after {step.command!r}",
        )

    def text(self) -> str:
        """Everything that the terminal has shown, without trailing spaces."""
        captured = self._run("capture-pane", "-p", "-S", "-")
        return "\n".join(line.rstrip() for line in captured.rstrip().splitlines())

    def close(self) -> None:
        """Close the terminal: its programs get SIGHUP."""
        self._run("kill-server")

    def _type(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def _wait(self, holds: Callable[[str], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds(self.text()):
            if time.monotonic() > deadline:
                raise SystemExit(f"the terminal does not show {what}:\n{self.text()}")
            time.sleep(0.1)

    def _run(self, *words: str) -> str:
        result = subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True)
        return result.stdout


def record(kubeconfig: Path, image: str, folder: Path) -> str:
    """Go through the walk and return what both terminals showed."""
    (folder / "train.py").write_text(SCRIPT)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": path, "KUBECONFIG": str(kubeconfig), "PS1": f"{PROMPT} ", "PYTHONPATH": str(ROOT / "src"),
        "TERM": "xterm-256color", "LANG": "C.UTF-8",
    }  # fmt: skip
    shown = []
    for number, commands in enumerate(steps(image)):
        terminal = Terminal(f"torchyard-walk-{os.getpid()}-{number}", folder, environment)
        try:
            for step in commands:
                terminal.do(step)
            shown.append(terminal.text())
        finally:
            terminal.close()
    first, second = shown
    return f"{first}\n\n[the terminal is closed]\n\n{second.removesuffix(PROMPT).rstrip()}\n"


@contextmanager
def plane(folder: Path) -> Iterator[Path]:
    state = folder / "state"
    yard = [sys.executable, "-m", "torchyard.cli"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    up = [*yard, "up", "--detach", "--port", "0", "--state", str(state)]
    subprocess.run(up, check=True, capture_output=True, env=environment)
    try:
        yield state / "kubeconfig"
    finally:
        subprocess.run([*yard, "down", "--state", str(state)], check=False, capture_output=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kubeconfig", type=Path, help="A cluster with the operator. Default: a plane that is started."
    )
    parser.add_argument("--image", default="", help="The image of the script's pods.")
    parser.add_argument("--output", type=Path, required=True, help="The file to write.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="walk-") as directory:
        folder = Path(directory) / "project"
        folder.mkdir()
        if arguments.kubeconfig is not None:
            text = record(arguments.kubeconfig.resolve(), arguments.image, folder)
        else:
            with plane(Path(directory)) as kubeconfig:
                text = record(kubeconfig, arguments.image, folder)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)


if __name__ == "__main__":
    main()
