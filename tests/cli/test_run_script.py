"""`yard run SCRIPT`: a script with the files beside it becomes a PyTorchJob."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment, yard

from torchyard.api.errors import YardError
from torchyard.core.run.script_command import program_of
from torchyard.core.run.script_job import PART_BYTES, ScriptJob, job_name, script_objects
from torchyard.jobs import workspace
from torchyard.jobs.scripts import script_manifest
from torchyard.jobs.workspace import files_of, pack

SCRIPT = """
import os, sys
from package.values import VALUE
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], VALUE, os.environ.get("GREETING"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "values.py").write_text("VALUE = 42\n")
    (folder / "My_train.py").write_text(SCRIPT)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    return folder


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_the_same_files_give_the_same_archive(project: Path) -> None:
    first = pack(project)
    os.utime(project / "My_train.py", (1, 1))
    assert pack(project) == first
    assert names_in(first) == ["My_train.py", "package/values.py"]


def test_ignore_files_are_honoured(project: Path) -> None:
    (project / "data.bin").write_bytes(b"1")
    (project / "keep.bin").write_bytes(b"1")
    (project / ".yardignore").write_text("*.bin\n!keep.bin\npackage\n")
    assert [path.as_posix() for path in files_of(project)] == [".yardignore", "My_train.py", "keep.bin"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_files_that_git_ignores_are_left_out(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".gitignore").write_text("*.log\n")
    (project / "out.log").write_text("x")
    assert [path.as_posix() for path in files_of(project)] == [".gitignore", "My_train.py", "package/values.py"]


def test_links_stay_inside(project: Path) -> None:
    (project / "inside").symlink_to("package")
    assert "inside" in names_in(pack(project))
    (project / "outside").symlink_to("/etc/passwd")
    with pytest.raises(YardError, match="outside is a link that leads out of"):
        pack(project)


def test_a_folder_that_is_too_large_names_its_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "ARCHIVE_LIMIT", PART_BYTES)
    (project / "weights.bin").write_bytes(os.urandom(2_000_000))
    with pytest.raises(YardError, match=r"weights\.bin \(2\.0 MB\)") as raised:
        pack(project)
    assert ".yardignore" in raised.value.hint


def test_the_name_of_a_job_comes_from_the_file() -> None:
    assert job_name("src/My_train.v2.py") == "my-train-v2"
    assert job_name("___.py") == "script"
    assert len(job_name("x" * 300 + ".py")) <= 40


def test_the_manifest_has_what_the_options_ask_for() -> None:
    job = ScriptJob(
        "j", "a.py", ("--lr", "1"), nodes=3, processes=2, gpus=1, cpu="2", memory="1Gi", queue="q", priority="high"
    )
    training = script_objects(job, b"x")[1]
    assert training["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "q",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert training["spec"]["nprocPerNode"] == "2"
    worker = training["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    container = worker["template"]["spec"]["containers"][0]
    assert program_of(container) == ["python", "-u", "-m", "torch.distributed.run", "a.py", "--lr", "1"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}


def test_a_script_that_is_missing_or_ignored_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(YardError, match=r"cannot read train\.py"):
        script_manifest(ScriptJob("", "train.py"))
    (project / ".yardignore").write_text("My_train.py")
    with pytest.raises(YardError, match=r"My_train\.py is not among the files"):
        script_manifest(ScriptJob("", "My_train.py"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("scripts"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


def run(plane: Yard, folder: Path, *arguments: str) -> tuple[int, str]:
    command = [*_command(), "run", "--kubeconfig", str(plane.kubeconfig), *arguments]
    process = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(folder.parent / "cache"), **_environment()},
    )
    return process.returncode, process.stdout


def test_a_script_runs_with_its_folder_arguments_and_environment(plane: Yard, project: Path) -> None:
    code, output = run(
        plane, project, "My_train.py", "--name", "walk", "-e", "GREETING=hello", "--", "--lr", "0.5", "a b"
    )
    assert code == 0, output
    assert "[master-0] rank 0 of 1 ['--lr', '0.5', 'a b'] 42 hello" in output
    api = plane.server().admin
    archive = api.get("/api/v1/namespaces/default/configmaps/walk-workspace").json
    assert archive["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    assert api.delete("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/walk").status == 200
    path = "/api/v1/namespaces/default/configmaps/walk-workspace"
    eventually(lambda: api.get(path).status == 404, "the files to be deleted with the job")


def test_a_job_that_is_refused_leaves_no_files_and_deletes_no_other(plane: Yard, project: Path) -> None:
    api = plane.server().admin
    code, output = run(plane, project, "My_train.py", "--name", "Not_valid")
    assert code == 1 and 'PyTorchJob.kubeflow.org "Not_valid" is invalid: ' in output
    assert api.get("/api/v1/namespaces/default/configmaps/Not_valid-workspace").status == 404
    assert run(plane, project, "My_train.py", "--name", "kept")[0] == 0
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/kept"
    uid = api.get(path).json["metadata"]["uid"]
    code, output = run(plane, project, "My_train.py", "--name", "kept", "--queue", "a b", "--replace")
    assert code == 1 and 'PyTorchJob.kubeflow.org "kept" is invalid: ' in output
    assert api.get(path).json["metadata"]["uid"] == uid
    code, output = run(plane, project, "My_train.py", "--name", "kept", "--", "\udcff")
    assert code == 1 and "error: the object cannot be sent as JSON" in output


def test_changed_files_do_not_reach_a_job_that_runs(plane: Yard, project: Path) -> None:
    (project / "wait.py").write_text("import time\ntime.sleep(600)\n")
    code, output = run(plane, project, "wait.py", "--name", "waits", "--detach")
    assert code == 0, output
    assert "follow it with: yard logs -f waits" in output
    (project / "wait.py").write_text("print('second version')\n")
    code, output = run(plane, project, "wait.py", "--name", "waits")
    assert code == 1
    assert "cannot be changed in place" in output
    code, output = run(plane, project, "wait.py", "--name", "waits", "--replace")
    assert code == 0, output
    assert "[master-0] second version" in output


@pytest.mark.parametrize(
    ("handler", "code", "last_line"),
    [
        ("", 143, "ready"),
        ("signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(3)))", 3, "saved"),
    ],
)
def test_sigterm_ends_a_script_at_once_or_calls_its_handler(
    plane: Yard, project: Path, handler: str, code: int, last_line: str
) -> None:
    """The first process of a container ignores it; a job would train on until its grace period ends."""
    name = f"ends-{code}"
    text = f"import signal, sys, time\n{handler}\nprint('ready', flush=True)\ntime.sleep(600)\n"
    (project / "ends.py").write_text(text)
    exit_code, output = run(plane, project, "ends.py", "--name", name, "--detach")
    assert exit_code == 0, output
    api, pod = plane.server().admin, f"/api/v1/namespaces/default/pods/{name}-master-0"
    eventually(lambda: b"ready" in api.get(f"{pod}/log").body, "the script to run")
    cluster = ("--kubeconfig", str(plane.kubeconfig))
    killed = yard("exec", name, *cluster, "--", "sh", "-c", "kill -TERM 1", state=plane.state)
    assert killed.returncode in {0, 137}, killed.stderr  # the container may end before the command in it has returned

    def ended() -> bool:
        state = api.get(pod).json["status"]["containerStatuses"][0]["state"]
        return (state.get("terminated") or {}).get("exitCode") == code

    eventually(ended, f"the exit code {code}")
    assert api.get(f"{pod}/log").body.decode().splitlines()[-1] == last_line


def test_options_of_scripts_are_refused_for_manifests(plane: Yard, project: Path) -> None:
    (project / "pod.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}))
    code, output = run(plane, project, "pod.yaml", "--nodes", "2")
    assert code == 1
    assert "pod.yaml is a manifest" in output
    code, output = run(plane, project, "My_train.py", "--env", "LR")
    assert code == 1
    assert "--env LR: it is not NAME=VALUE" in output
    code, output = run(plane, project, "My_train.py", "--memory", "much", "--dry-run")
    assert code == 1
    assert "memory" in output
