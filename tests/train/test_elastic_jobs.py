"""Elastic training in pods: a PyTorchJob with rdzvBackend torchyard, and ElasticDL's tutorial with its clients.

Each job loses a worker and ends with the model of an undisturbed run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cli.verbs import PORT, use_every_command
from tests.elastic.test_elasticdl_program import PROGRAM, STANDIN, arguments, result, write_images
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.effort import FULL
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT
from tests.support.training import interpreter
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object
from torchyard.elastic.agent.agent import COMPAT

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]
PATIENCE = 400.0
PROGRAMS = ROOT / "tests" / "elastic" / "programs"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    yard_process = Yard(
        tmp_path_factory.mktemp("elastic"), controllers="*", flags=("--node", "--python", interpreter())
    )
    try:
        yard_process.start()
        yield yard_process
    finally:
        yard_process.stop()
        yard("down", state=yard_process.state, timeout=120)


@pytest.fixture
def shell(plane: Yard, tmp_path: Path) -> Kubectl:
    kubectl = kubectls.need()
    return kubectl.using(plane.kubeconfig, tmp_path, "default")


def alone(*command: str, **variables: str) -> str:
    """Return the output of a program that trains alone."""
    paths = [str(ROOT / "src"), str(COMPAT), *([] if importlib.util.find_spec("torchvision") else [str(STANDIN)])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **variables}
    done = subprocess.run(
        [interpreter(), *command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def log_of(shell: Kubectl, pod: str) -> str:
    return shell.run("logs", pod).stdout


def running(shell: Kubectl, pod: str, line: str) -> None:
    eventually(lambda: line in log_of(shell, pod), f"{line!r} in the log of {pod}", PATIENCE)


def kill(shell: Kubectl, pod: str) -> None:
    shell("delete", "pod", pod, "--force", "--grace-period=0", timeout=120)


def test_a_pytorchjob_with_rdzv_backend_torchyard_survives_a_killed_pod(shell: Kubectl, tmp_path: Path) -> None:
    mounted = {"/src": ROOT / "src", "/programs": PROGRAMS, "/share": tmp_path}
    volumes = [{"name": path[1:], "hostPath": {"path": str(source)}} for path, source in mounted.items()]
    container = {
        "name": "pytorch",
        "image": "pytorch/pytorch",
        "command": ["python", "/programs/mlp.py", "--hold", "/share/go", "--hold-pause", "1", "--epochs", "12"],
        "env": [{"name": "PYTHONPATH", "value": "/src"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": path[1:], "mountPath": path} for path in mounted],
    }
    worker = {
        "replicas": 2,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"containers": [container], "volumes": volumes}},
    }
    job: Object = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "elastic"},
        "spec": {
            "elasticPolicy": {"rdzvBackend": "torchyard", "minReplicas": 1, "maxReplicas": 4},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }
    shell("create", "-f", "-", stdin=yaml.safe_dump(job))
    running(shell, "elastic-worker-0", "step 10 of world 2")
    first = shell("get", "pod", "elastic-worker-0", "-o", "jsonpath={.metadata.uid}")
    kill(shell, "elastic-worker-1")
    uid = ("get", "pod", "elastic-worker-1", "-o", "jsonpath={.metadata.uid}")
    running(shell, "elastic-worker-1", "of world 2")
    if FULL:
        lost = shell(*uid)
        shell("delete", "pod", "elastic-worker-1", timeout=120)  # it hands over and leaves, and is replaced
        eventually(lambda: shell.run(*uid).stdout not in ("", lost), "another pod", PATIENCE)
        running(shell, "elastic-worker-1", "of world 2")
    (tmp_path / "go").touch()
    eventually(
        lambda: shell("get", "pytorchjob", "elastic", "--no-headers").split()[1] in ("Succeeded", "Failed"),
        "the end of the job",
        PATIENCE,
    )
    log = log_of(shell, "elastic-worker-0")
    assert shell("get", "pytorchjob", "elastic", "--no-headers").split()[1] == "Succeeded", log[-2000:]
    assert shell("get", "pod", "elastic-worker-0", "-o", "jsonpath={.metadata.uid}") == first, "the survivor stayed"
    digests = re.findall(r"digest (\w+)", log)
    assert digests == re.findall(r"digest (\w+)", alone(str(PROGRAMS / "mlp.py"), "--epochs", "12"))


def nodes(shell: Kubectl, job: str) -> dict[str, str]:
    """The pods of a TrainJob that are not being deleted, by their index."""
    listed = yaml.safe_load(shell("get", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={job}", "-o", "yaml"))["items"]
    return {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["metadata"]["name"]
        for pod in listed
        if not pod["metadata"].get("deletionTimestamp") and pod["status"]["phase"] in ("Pending", "Running")
    }


def trains(shell: Kubectl, job: str, index: str, line: str, other_than: str = "") -> None:
    """Wait for a line in the log of the node with this index, whose pod is another one than that."""

    def is_printed() -> bool:
        pod = nodes(shell, job).get(index)
        return pod is not None and pod != other_than and line in shell.run("logs", pod).stdout.split("elastic: ")[-1]

    eventually(is_printed, f"{line!r} in the log of node {index}", PATIENCE)


def test_a_trainjob_of_the_elastic_runtime_is_resized_and_survives_killed_nodes(shell: Kubectl, tmp_path: Path) -> None:
    """The node of the coordinator is one of those that are killed in the full run."""
    mounted = {"/src": ROOT / "src", "/programs": PROGRAMS, "/share": tmp_path}
    patch = {
        "containers": [
            {"name": "node", "volumeMounts": [{"name": path[1:], "mountPath": path} for path in mounted]},
        ],
        "volumes": [{"name": path[1:], "hostPath": {"path": str(source)}} for path, source in mounted.items()],
    }
    replicated_job = {"name": "node", "template": {"spec": {"template": {"spec": patch}}}}
    job: Object = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "resized"},
        "spec": {
            "runtimeRef": {"name": "torchyard-elastic"},
            "trainer": {
                "numNodes": 2,
                "command": ["python", "/programs/mlp.py", "--hold", "/share/go", "--hold-pause", "1", "--epochs", "12"],
                "env": [{"name": "PYTHONPATH", "value": "/src"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
            },
            "runtimePatches": [
                {
                    "manager": "tests.torchyard.dev/mounts",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated_job]}}},
                }
            ],
        },
    }
    eventually(
        lambda: shell.run("get", "clustertrainingruntime", "torchyard-elastic").returncode == 0, "the runtime", PATIENCE
    )
    shell("create", "-f", "-", stdin=yaml.safe_dump(job))
    eventually(lambda: len(nodes(shell, "resized")) == 2, "the nodes", PATIENCE)
    trains(shell, "resized", "0", "of world 2")
    shell("annotate", "trainjob", "resized", "torchyard.dev/num-nodes=3")
    trains(shell, "resized", "2", "of world 3")
    for index in ("1", "0") if FULL else ():
        lost = nodes(shell, "resized")[index]
        kill(shell, lost)
        trains(shell, "resized", index, "of world 3", other_than=lost)
    if FULL:
        lost = nodes(shell, "resized")["1"]
        shell("delete", "pod", lost, timeout=120)  # it hands over and leaves, and is replaced
        trains(shell, "resized", "1", "of world 3", other_than=lost)
    assert shell.run("annotate", "trainjob", "resized", "--overwrite", "torchyard.dev/num-nodes=17").returncode != 0
    shell("annotate", "trainjob", "resized", "torchyard.dev/num-nodes-")
    eventually(lambda: set(nodes(shell, "resized")) == {"0", "1"}, "two nodes", PATIENCE)
    names = nodes(shell, "resized")
    (tmp_path / "go").touch()
    state = ("get", "trainjob", "resized", "-o", "jsonpath={.status.state}")
    eventually(lambda: shell(*state) in ("Complete", "Failed"), "the end of the job", PATIENCE)
    logs = [log_of(shell, pod) for pod in names.values()]
    assert shell(*state) == "Complete", logs
    digests = set(re.findall(r"digest (\w+)", "".join(logs)))
    assert digests == set(re.findall(r"digest (\w+)", alone(str(PROGRAMS / "mlp.py"), "--epochs", "12"))), logs


def endless(kind: str) -> Object:
    """A job of two workers that trains until it is stopped."""
    mounted = {"/src": ROOT / "src", "/programs": PROGRAMS}
    volumes = [{"name": path[1:], "hostPath": {"path": str(source)}} for path, source in mounted.items()]
    program: Object = {
        "image": "pytorch/pytorch",
        "command": ["python", "/programs/endless.py", "--port", str(PORT)],
        "args": ["--lr", "0.1"],
        "env": [{"name": "PYTHONPATH", "value": "/src"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    mounts = {"volumeMounts": [{"name": path[1:], "mountPath": path} for path in mounted]}
    metadata = {"name": f"endless-{kind.lower()}"}
    if kind == "PyTorchJob":
        pods = {"spec": {"containers": [{"name": "pytorch", **program, **mounts}], "volumes": volumes}}
        worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": pods}
        policy = {"rdzvBackend": "torchyard", "minReplicas": 1, "maxReplicas": 4}
        spec: Object = {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}}
        return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}
    patch = {"spec": {"containers": [{"name": "node", **mounts}], "volumes": volumes}}
    replicated_job = {"name": "node", "template": {"spec": {"template": patch}}}
    patches = {"template": {"spec": {"replicatedJobs": [replicated_job]}}}
    spec = {
        "runtimeRef": {"name": "torchyard-elastic"},
        "trainer": {"numNodes": 2, **program},
        "runtimePatches": [{"manager": "tests.torchyard.dev/mounts", "trainingRuntimeSpec": patches}],
    }
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.skipif(not FULL, reason="one to two minutes for each kind: TORCHYARD_TESTS=full")
@pytest.mark.parametrize(("kind", "role"), [("PyTorchJob", "worker-1"), ("TrainJob", "node-0-1")])
def test_every_daily_command_works_for_an_elastic_job(plane: Yard, kind: str, role: str, tmp_path: Path) -> None:
    use_every_command(plane, endless(kind), ranks=2, role=role, folder=tmp_path)


def client(name: str) -> list[str]:
    if name == "ours":
        return [sys.executable, "-c", "import sys; from torchyard.elasticdl.cli import main; sys.exit(main())"]
    published = os.environ.get("TORCHYARD_ELASTICDL_CLIENT", "")
    if not published:
        pytest.skip("name the command of elasticdl_client 1.0.0 with TORCHYARD_ELASTICDL_CLIENT")
    return [published]


@pytest.mark.parametrize("name", ["ours", "published"])
def test_the_elasticdl_tutorial_replaces_a_lost_worker(
    shell: Kubectl, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    command = client(name)
    images = write_images(tmp_path_factory.mktemp("mnist_png"))
    long = ["--num_epochs", "8"]  # a pod takes a while to start: there must be something left to do
    weights, accuracy = result(alone(str(PROGRAM), *arguments(images), *long, WORKER_NUM="2"))
    inside = [*arguments(Path("/data")), *long]
    zoo = tmp_path_factory.mktemp("zoo")
    shutil.copy(PROGRAM, zoo)
    if not importlib.util.find_spec("torchvision"):
        shutil.copytree(STANDIN, zoo, dirs_exist_ok=True)
    mounted = {"/data": images, "/model_zoo": zoo}
    submit = [
        "train", "--image_name=elasticdl/elasticdl:v1.0.0", "--worker_image=pytorch/pytorch", "--num_workers=2",
        f"--job_command=python /model_zoo/{PROGRAM.name} {' '.join(inside)}", "--image_pull_policy=Never",
        "--master_resource_request=cpu=0.2,memory=256Mi", "--worker_resource_request=cpu=0.3,memory=1024Mi",
        "--volume=" + ";".join(f"host_path={source},mount_path={path}" for path, source in mounted.items()),
        "--envs=OMP_NUM_THREADS=1",
        f"--job_name=mnist-{name}", "--distribution_strategy=AllreduceStrategy",
    ]  # fmt: skip
    shell.run(
        "create", "clusterrolebinding", "elasticdl", "--clusterrole=cluster-admin", "--serviceaccount=default:default"
    )
    environment = {**os.environ, "KUBECONFIG": str(shell.kubeconfig)}
    done = subprocess.run([*command, *submit], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    master, first = f"elasticdl-mnist-{name}-master", f"mnist-{name}-edljob-worker"
    phase = ("-o", "jsonpath={.status.phase}")
    eventually(lambda: shell.run("get", "pod", f"{first}-1", *phase).stdout == "Running", "the workers", PATIENCE)
    running(shell, f"{first}-0", "loss")
    kill(shell, f"{first}-0")
    eventually(lambda: shell.run("get", "pod", f"{first}-2", *phase).stdout == "Running", "the added worker", PATIENCE)
    eventually(lambda: shell("get", "pod", master, *phase) in ("Succeeded", "Failed"), "the end", PATIENCE)
    assert shell("get", "pod", master, *phase) == "Succeeded", log_of(shell, master)[-2000:]
    assert result(log_of(shell, f"{first}-1")) == (weights, accuracy)
