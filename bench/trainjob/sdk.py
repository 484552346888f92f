"""`python -m bench.trainjob.sdk`: the Kubeflow SDK's `train(func, num_nodes=4)` on a plane, until four nodes run.

The SDK is unmodified and runs in an environment of its own (`requirements/clients/kubeflow.txt`). A run lasts from the
call until a watch of the pods has shown the four of them Running. The nodes start `bash`, which starts torchrun, as the
SDK writes it. A job is deleted, and its pods are gone, before the next run.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import psutil
from tests.clients.test_libraries import environment, interpreter
from tests.support import training
from tests.support.waiting import eventually
from tests.support.yard import Yard
from tests.support.yard import yard as run_yard

from bench.quantiles import quantile

NODES = 4
_RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
_PROGRAM = Path(__file__).parent / "call_train.py"


def main() -> None:
    """Print each run, and the quantiles."""
    parser = argparse.ArgumentParser(prog="python -m bench.trainjob.sdk")
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-sdk-") as directory:
        yard = Yard(Path(directory), node=True, flags=("--python", training.interpreter()))
        with yard as server:
            eventually(lambda: server.admin.get(_RUNTIME).status == 200, "the runtime torch-distributed")
            command = [interpreter("kubeflow"), _PROGRAM, str(NODES), str(arguments.runs + 1)]
            assert yard.process is not None
            plane = psutil.Process(yard.process.pid)
            before = plane.cpu_times()
            output = subprocess.run(command, env=environment(server), capture_output=True, text=True, check=True).stdout
            after = plane.cpu_times()
        run_yard("down", state=yard.state, timeout=120)
    runs = [[float(word) for word in line.split()] for line in output.splitlines()][1:]  # the first fills caches
    for run in runs:
        print("train() returned {:.0f} ms, pods exist {:.0f} ms, all run {:.0f} ms".format(*(1000 * at for at in run)))
    seconds = sorted(running for _, _, running in runs)
    returned = sorted(posted for posted, _, _ in runs)
    cpu = (after.user + after.system - before.user - before.system) / len(runs)
    print(
        f"train() until {NODES} nodes run: p50 {1000 * quantile(seconds, 0.5):.0f} ms,"
        f" p90 {1000 * quantile(seconds, 0.9):.0f} ms (goal: p50 at most 150); train() itself:"
        f" p50 {1000 * quantile(returned, 0.5):.0f} ms; the plane's CPU for a whole run: {1000 * cpu:.0f} ms"
    )


if __name__ == "__main__":
    main()
