"""The tutorial's command: which pods it makes, and what is refused before any is made."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.elasticdl import cli, flags, pods, supervisor, worker_plan, zoo
from torchyard.elasticdl.flag_values import BadFlag

TUTORIAL = [
    "train",
    "--image_name=elasticdl/elasticdl:v1.0.0",
    "--worker_image=elasticdl:mnist_pytorch",
    "--job_command=python -m model_zoo.mnist.mnist_pytorch --batch_size 64 --training_data=/data/mnist_png/training",
    "--num_minibatches_per_task=2",
    "--num_workers=2",
    "--master_resource_request=cpu=0.2,memory=1024Mi",
    "--master_resource_limit=cpu=1,memory=2048Mi",
    "--worker_resource_request=cpu=0.3,memory=1024Mi",
    "--worker_resource_limit=cpu=1,memory=2048Mi",
    "--envs=USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60,PYTHONUNBUFFERED=true",
    "--job_name=test-mnist-allreduce",
    "--image_pull_policy=Never",
    "--volume=host_path=/home/me/data,mount_path=/data",
    "--distribution_strategy=AllreduceStrategy",
]
OWNER = {"metadata": {"name": "m", "uid": "u", "labels": {pods.TYPE: pods.MASTER}}}


def parse_arguments(*more: str) -> Any:
    return cli.parser().parse_args([*TUTORIAL, *more])


def worker(index: int = 0, *more: str) -> Any:
    return pods.worker(parse_arguments(*more), index, owner=OWNER, variables={"WORKER_NUM": "2"}, start="import os")


def test_the_master_is_named_and_labelled_as_clients_expect() -> None:
    pod = pods.master(parse_arguments(), cli.master_command(parse_arguments()))
    assert pod["metadata"]["name"] == "elasticdl-test-mnist-allreduce-master"
    assert pod["metadata"]["labels"] == {
        "app": "elasticdl",
        "elasticdl-job-name": "test-mnist-allreduce",
        "elasticdl-replica-type": "edl-master",
        "elasticdl-replica-index": "0",
    }
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "2048Mi"}


def test_workers_are_named_as_in_the_tutorial_and_belong_to_the_master() -> None:
    pod = worker(1)
    assert pod["metadata"]["name"] == "test-mnist-allreduce-edljob-worker-1"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u"
    container = pod["spec"]["containers"][0]
    assert container["image"] == "elasticdl:mnist_pytorch"
    assert container["args"][-1].endswith("--training_data=/data/mnist_png/training")
    variables = {item["name"]: item.get("value") for item in container["env"]}
    assert variables["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "60"
    assert variables["WORKER_NUM"] == "2"
    assert container["volumeMounts"][0]["mountPath"] == "/data"


def test_the_master_parses_the_flags_of_the_client() -> None:
    command = shlex.split(cli.master_command(parse_arguments()).removeprefix("set -o pipefail; "))
    assert command[:3] == ["python", "-m", "elasticdl.python.master.main"]
    read, arguments = supervisor.parse(command[3:]), parse_arguments()
    for flag in flags.COMMON + flags.TRAIN:
        assert getattr(read, flag.name) == getattr(arguments, flag.name), flag.name


def test_the_flags_of_the_published_client_are_parsed() -> None:
    """As version 1.0.0 writes its master's command: all flags, unset ones as empty strings."""
    read = supervisor.parse(
        ["--worker_image", "w", "--model_zoo", "", "--cluster_spec", "", "--cluster_spec_json", "", "--num_epochs", "1",
         "--need_task_manager", "True", "--use_async", "False", "--job_command", "python x.py", "--image_name", "i",
         "--job_name", "j", "--num_workers", "3", "--restart_policy", "Never",
         "--distribution_strategy", "AllreduceStrategy",
         "--critical_worker_index", "default", "--unknown_of_later", "1"]
    )  # fmt: skip
    flags.check_training(read)
    assert (read.num_workers, read.job_command, read.use_async, read.need_task_manager) == (
        3,
        "python x.py",
        False,
        True,
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--num_ps_pods=1"], "parameter servers are not supported"),
        (["--job_command="], "--job_command is missing"),
        (["--need_elasticdl_job_service"], "Keras loop is not supported"),
        (["--need_tf_config"], "TensorFlow jobs are not supported"),
        (["--num_workers=0"], "at least 1"),
        (["--image_name="], "--image_name is missing"),
        (["--cluster_spec=c.py"], "Python files are not supported"),
        (["--worker_pod_priority=1.5"], "is not between 0 and 1"),
        (["--volume=mount_path=/x"], "has no source"),
        (["--cluster_spec_json=%%"], "neither valid JSON nor base64"),
    ],
)
def test_unsupported_flags_are_refused_before_anything_is_created(
    more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*TUTORIAL, *more]) == 1
    assert message in capsys.readouterr().err


def test_evaluate_and_predict_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--job_name=j", "--validation_data=d", "--checkpoint_dir_for_init=c"]) == 1
    assert "Keras loop" in capsys.readouterr().err


def test_no_command_shows_the_help_and_an_unknown_flag_gives_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main([]) == 1
    assert "train" in capsys.readouterr().err
    assert cli.main([*TUTORIAL, f"--yaml={tmp_path}/m.yaml", "--num_wokers=3"]) == 0
    assert "--num_wokers=3 is not a known flag" in capsys.readouterr().err


def test_yaml_writes_the_master_and_submits_nothing(tmp_path: Path) -> None:
    assert cli.main([*TUTORIAL, f"--yaml={tmp_path}/m.yaml"]) == 0
    assert yaml.safe_load((tmp_path / "m.yaml").read_text())["kind"] == "Pod"


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("", ["", "", "", ""]),
        ("high", ["high"] * 4),
        ("low", ["low"] * 4),
        ("0.5", ["high", "low", "low", "high"]),
        ("0.3", ["high", "low", "low", "high"]),
        ("0.25", ["high", "low", "low", "low"]),
        ("my-class", ["my-class"] * 4),
    ],
)
def test_a_fraction_of_the_workers_has_high_priority(text: str, classes: list[str]) -> None:
    assert [pods.worker_priority(text, index, 4) for index in range(4)] == classes


def test_a_cluster_specification_changes_labels_tolerations_and_variables() -> None:
    spec = {
        "pod_spec": {"labels": {"team": "a"}},
        "worker_pod_spec": {"tolerations": [{"key": "gpu"}], "env": [{"name": "X", "value": "1"}]},
    }
    encoded = base64.b64encode(json.dumps(spec).encode()).decode()
    for text in (json.dumps(spec), encoded):
        pod = worker(0, f"--cluster_spec_json={text}")
        assert pod["metadata"]["labels"]["team"] == "a"
        assert pod["spec"]["tolerations"] == [{"key": "gpu"}]
        assert {"name": "X", "value": "1"} in pod["spec"]["containers"][0]["env"]


def ended(code: int, reason: str = "Error") -> Any:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"metadata": {"name": "w"}, "status": {"phase": "Failed", "containerStatuses": [{"state": state}]}}


@pytest.mark.parametrize(
    ("pod", "own_error"),
    [
        (ended(137), False),
        (ended(143), False),
        (ended(1), True),
        (ended(137, "OOMKilled"), True),
        ({"metadata": {"name": "w"}, "status": {"phase": "Failed", "reason": "Evicted"}}, False),
    ],
)
def test_a_failed_worker_is_distinguished_from_an_evicted_one(pod: Any, own_error: bool) -> None:
    assert worker_plan.pod_outcome(pod).own_error is own_error


def running(name: str, *, leaving: bool = False) -> Any:
    metadata = {"name": name} | ({"deletionTimestamp": "now"} if leaving else {})
    return {"metadata": metadata, "status": {"phase": "Running"}}


def test_every_worker_that_ended_is_replaced() -> None:
    assert worker_plan.plan(2, [], own_errors=0, relaunch=True).create == 2
    assert worker_plan.plan(2, [running("a"), ended(1)], own_errors=1, relaunch=True).create == 1
    assert worker_plan.plan(2, [running("a"), running("b", leaving=True)], own_errors=0, relaunch=True).create == 1
    assert worker_plan.plan(2, [running("a"), running("b")], own_errors=0, relaunch=True).create == 0


def test_a_job_fails_after_three_worker_failures_in_a_row() -> None:
    assert "3 workers in a row" in worker_plan.plan(2, [], own_errors=3, relaunch=True).failed


def test_without_relaunch_ended_workers_are_not_replaced() -> None:
    assert worker_plan.plan(2, [running("a"), ended(137)], own_errors=0, relaunch=False) == worker_plan.WorkerPlan()
    assert "disable_relaunch" in worker_plan.plan(1, [ended(137)], own_errors=0, relaunch=False).failed


def test_zoo_init_writes_a_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "requirements.txt").write_text("numpy\n")
    assert cli.main(["zoo", "init", "--model_zoo", "zoo", "--base_image", "horovod/horovod:1"]) == 0
    assert (tmp_path / "Dockerfile").read_text().splitlines() == [
        "FROM horovod/horovod:1",
        "COPY zoo /model_zoo",
        "RUN pip install -r /model_zoo/requirements.txt --extra-index-url=https://pypi.org/simple",
    ]
    assert cli.main(["zoo", "init", "--model_zoo", "missing"]) == 1


def test_zoo_push_is_refused_with_an_alternative() -> None:
    with pytest.raises(BadFlag, match="not supported") as caught:
        zoo._push(cli.parser().parse_args(["zoo", "push", "mnist:1"]))
    assert "yard image save mnist:1" in caught.value.hint


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--cluster_spec_json=[]", "is a JSON list, not an object"),
        ('--cluster_spec_json={"pod_spec": 3}', "pod_spec is not an object"),
        ('--cluster_spec_json={"worker_pod_spec": {"env": {}}}', "worker_pod_spec.env is not a list"),
        ('--cluster_spec_json={"pod_spec": {"labels": [1]}}', "pod_spec.labels is not an object"),
        ("--populate_env_names=(", "is not a regular expression"),
        ("--worker_resource_request=cpu=٣", "is not a valid quantity"),
        ("--worker_resource_request=gpu=²", "is not a number of devices"),
    ],
)
def test_a_flag_of_the_wrong_type_is_refused_by_name(
    flag: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*TUTORIAL, flag]) == 1
    assert message in capsys.readouterr().err


def test_the_path_of_the_log_file_is_quoted() -> None:
    assert worker(0, "--log_file_path=/logs/a; b")["spec"]["containers"][0]["args"][-1].endswith("| tee '/logs/a; b'")


@pytest.mark.parametrize(
    ("flag", "value"), [("--base_image", "a\nRUN x"), ("--extra_pypi_index", "x\n"), ("--base_image", "a AS b")]
)
def test_a_dockerfile_has_only_the_instructions_of_zoo_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["zoo", "init", flag, value]) == 1
    assert not (tmp_path / "Dockerfile").exists()


def test_a_model_zoo_with_spaces_and_an_index_with_a_shell_command_are_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my zoo").mkdir()
    (tmp_path / "my zoo" / "requirements.txt").write_text("numpy\n")
    assert cli.main(["zoo", "init", "--model_zoo", "my zoo", "--extra_pypi_index", "https://x; touch /y"]) == 0
    lines = (tmp_path / "Dockerfile").read_text().splitlines()
    assert lines[1:] == [
        'COPY ["my zoo", "/model_zoo"]',
        "RUN pip install -r /model_zoo/requirements.txt '--extra-index-url=https://x; touch /y'",
    ]


def test_scaling_to_no_workers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scale", "--job_name", "j", "--num_workers", "-1"]) == 1
    assert "at least 1" in capsys.readouterr().err


def test_an_index_label_that_is_not_a_number_does_not_count() -> None:
    pod = worker(3)
    assert pods.index_of(pod) == 3
    for text in ("²", "x", "", "9" * 30):
        pod["metadata"]["labels"][pods.INDEX] = text
        assert pods.index_of(pod) == -1
