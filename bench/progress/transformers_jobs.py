"""`python -m bench.progress.transformers_jobs`: how soon `kubectl get` shows what Transformers' Trainer reports.

The same program runs on a plane as a PyTorchJob, a TrainJob, a Job and an elastic PyTorchJob, one after the other. It
is changed for the elastic job only, which has three lines more. Prints the seconds from the first line with a loss, by
the time in the log, until the table that kubectl prints has percent, time that is left and loss. Needs the environment
of `make frameworks-venv`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard
from tests.support.yard import yard as run_yard

Object = dict[str, Any]
_PYTHON = (ROOT / ".venv-frameworks").resolve() / "bin" / "python"  # of this path its programs say that they are
_SPACE = "namespaces/default"
_PATHS = {
    "PyTorchJob": f"/apis/kubeflow.org/v1/{_SPACE}/pytorchjobs",
    "elastic": f"/apis/kubeflow.org/v1/{_SPACE}/pytorchjobs",
    "TrainJob": f"/apis/trainer.kubeflow.org/v1alpha1/{_SPACE}/trainjobs",
    "Job": f"/apis/batch/v1/{_SPACE}/jobs",
}
_PODS = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "elastic": "training.kubeflow.org/job-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
    "Job": "batch.kubernetes.io/job-name",
}
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_WHOLE = re.compile(r"\d+%.* left.*loss \d")
_LOSS = re.compile(r"'loss'|\bloss=")
_PATIENCE = 180.0


# The environment of frameworks has torch by a .pth file, from the environment of `make train-venv`.
_MOUNTED = {
    "programs": (Path(__file__).parent, "/programs"),
    "src": (ROOT / "src", "/src"),
    "torch": ((ROOT / ".venv-train").resolve(), str((ROOT / ".venv-train").resolve())),
}


_ENVIRONMENT = {"PYTHONPATH": "/src", "OMP_NUM_THREADS": "1"}


def _container(name: str, *arguments: str) -> Object:
    return {
        "name": name,
        "image": "pytorch/pytorch",
        "command": ["python", "/programs/train_with_transformers.py", *arguments],
        "env": [{"name": variable, "value": value} for variable, value in _ENVIRONMENT.items()],
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, (_, path) in _MOUNTED.items()],
    }


def _pod(name: str, *arguments: str) -> Object:
    volumes = [{"name": volume, "hostPath": {"path": str(path)}} for volume, (path, _) in _MOUNTED.items()]
    return {"spec": {"restartPolicy": "Never", "containers": [_container(name, *arguments)], "volumes": volumes}}


def job(kind: str) -> Object:
    name = {"metadata": {"name": kind.lower()}}
    match kind:
        case "PyTorchJob":
            spec: Object = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _pod("pytorch")}}}
            return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **name, "spec": spec}
        case "elastic":
            worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": _pod("pytorch", "elastic")}
            policy = {"rdzvBackend": "torchyard", "minReplicas": 1, "maxReplicas": 2}
            spec = {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}}
            return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **name, "spec": spec}
        case "TrainJob":
            node = {"name": "node", "template": {"spec": {"template": _pod("node")}}}
            patch = {"volumes": _pod("node")["spec"]["volumes"]}
            patch["containers"] = [{"name": "node", "volumeMounts": _container("node")["volumeMounts"]}]
            node["template"] = {"spec": {"template": {"spec": patch}}}
            patches = {"template": {"spec": {"replicatedJobs": [node]}}}
            spec = {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"command": _container("node")["command"]},
                "runtimePatches": [{"manager": "example.com/bench", "trainingRuntimeSpec": patches}],
            }
            return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **name, "spec": spec}
        case _:
            return {
                "apiVersion": "batch/v1",
                "kind": "Job",
                **name,
                "spec": {"backoffLimit": 0, "template": _pod("main")},
            }


def measure(server: Server, kind: str) -> None:
    path, name = _PATHS[kind], kind.lower()
    created = server.admin.post(path, job(kind))
    assert created.status == 201, created.text
    row, shown = "", 0.0

    def is_shown() -> bool:
        nonlocal row, shown
        table = server.admin.get(f"{path}/{name}", headers={"Accept": _TABLE}).json
        row = " ".join(str(cell) for cell in table["rows"][0]["cells"])
        shown = time.time()
        return _WHOLE.search(row) is not None

    try:
        eventually(is_shown, f"progress of {name}", _PATIENCE)
    except AssertionError:
        print(f"{kind}: {row!r}; {_logs(server, kind)}")
        raise
    begun = min(_first_loss(server, kind))
    print(f"{kind}: {row!r} {shown - begun:.2f} s after the first loss", flush=True)
    server.admin.delete(f"{path}/{name}", {"propagationPolicy": "Foreground"})
    eventually(lambda: server.admin.get(f"{path}/{name}").status == 404, f"the end of {name}", _PATIENCE)


def _logs(server: Server, kind: str) -> list[str]:
    pods = f"/api/v1/{_SPACE}/pods"
    items = server.admin.get(pods, query={"labelSelector": f"{_PODS[kind]}={kind.lower()}"}).json["items"]
    paths = [f"{pods}/{pod['metadata']['name']}/log" for pod in items]
    return [server.admin.get(path, query={"timestamps": "true"}).text for path in paths]


def _first_loss(server: Server, kind: str) -> list[float]:
    """The time of the first line with a loss in the log of each pod that has one."""
    # A bar that is drawn again is one line, with carriage returns.
    lines = [[line for line in log.split("\n") if _LOSS.search(line)] for log in _logs(server, kind)]
    return [datetime.fromisoformat(found[0].split()[0]).timestamp() for found in lines if found]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.progress.transformers_jobs")
    parser.add_argument("kinds", nargs="*", default=list(_PATHS), help=", ".join(_PATHS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-progress-") as directory:
        yard = Yard(Path(directory), controllers="*", node=True, flags=("--python", str(_PYTHON)))
        try:
            server = yard.start()
            runtime = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
            eventually(lambda: server.admin.get(runtime).status == 200, "the runtime")
            for kind in arguments.kinds:
                measure(server, kind)
        finally:
            yard.stop()
            run_yard("down", state=yard.state, timeout=120)


if __name__ == "__main__":
    main()
