"""The command line of a job, and how `yard rerun` changes it."""

from __future__ import annotations

import copy

import pytest

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.program import program_options, program_words, set_arguments, set_value
from torchyard.core.run.rerun import RERUN_OF, base_name, renamed_job
from torchyard.core.run.script_command import split_command
from torchyard.core.run.script_job import ScriptJob, script_objects, workspace_parts


def batch_job(*command: str, **container: object) -> Object:
    pod = {"containers": [{"name": "main", "image": "busybox", "command": list(command), **container}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {"template": {"spec": pod}},
    }


def script(*arguments: str) -> Object:
    return script_objects(ScriptJob("train-x7k2p", "train.py", arguments, nodes=2), b"files")[1]


def test_the_options_of_a_program_are_read_from_words_and_from_shell_scripts() -> None:
    assert program_words(script("--lr", "0.1")) == ["python", "-u", "train.py", "--lr", "0.1"]
    assert program_options(script("--lr", "0.1", "--fast", "--bs=2", "x")) == {
        "arguments": "python -u train.py x",
        "--lr": "0.1",
        "--fast": "true",
        "--bs": "2",
    }
    assert program_options(batch_job("sh", "-c", "python t.py --lr 0.5"))["--lr"] == "0.5"


@pytest.mark.parametrize(
    ("arguments", "assignment", "result"),
    [
        (("--lr", "0.1", "--epochs", "2"), "lr=0.5", ["--lr", "0.5", "--epochs", "2"]),
        (("--lr=0.1",), "lr=0.5", ["--lr=0.5"]),
        ((), "lr=0.5", ["--lr", "0.5"]),
        (("--lr-decay", "1"), "lr=0.5", ["--lr-decay", "1", "--lr", "0.5"]),
        (("-b", "1"), "-b=2", ["-b", "2"]),
        (("--amp", "--lr", "0.1"), "amp=true", ["--amp", "--lr", "0.1"]),
        (("--lr", "0.1", "--amp"), "amp=false", ["--lr", "0.1"]),
        (("--amp", "--lr", "0.1"), "amp=bf16", ["--amp", "bf16", "--lr", "0.1"]),
    ],
)
def test_an_option_is_replaced_or_appended_on_every_replica(
    arguments: tuple[str, ...], assignment: str, result: list[str]
) -> None:
    job = script(*arguments)
    set_value(job, assignment)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        command = replica["template"]["spec"]["containers"][0]["command"]
        assert split_command(command)[1] == ["python", "-u", "train.py", *result]


def test_variables_fields_and_shell_scripts_are_changed() -> None:
    job = batch_job("sh", "-c", "python t.py --lr 0.1 && echo --lr", env=[{"name": "A", "value": "1"}])
    set_value(job, "A=2")
    set_value(job, "lr=0.2 or more")
    set_value(job, "spec.backoffLimit=3")
    set_value(job, "spec.template.spec.containers.0.image=python:3")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "A", "value": "2"}]
    assert container["command"][2] == "python t.py --lr '0.2 or more' && echo --lr"
    assert container["image"] == "python:3"
    assert job["spec"]["backoffLimit"] == 3
    with pytest.raises(YardError, match="has no option --epochs"):
        set_value(job, "epochs=1")
    with pytest.raises(YardError, match="it is not NAME=VALUE"):
        set_value(job, "epochs")


@pytest.mark.parametrize(
    ("before", "assignment", "after"),
    [
        ("t.py --lr 0.1; echo", "lr=0.2", "t.py --lr 0.2; echo"),
        ("t.py --name 'a b' x", "name=c", "t.py --name c x"),
        ("t.py --lr $(cat lr) x", "lr=1", "t.py --lr 1 x"),
        ("t.py --amp --lr 0.1", "amp=true", "t.py --amp --lr 0.1"),
        ("t.py --amp \\\n  --lr \\\n 0.1", "lr=2", "t.py --amp \\\n  --lr \\\n 2"),
        ("t.py --amp && echo", "amp=bf16", "t.py --amp bf16 && echo"),
    ],
)
@pytest.mark.parametrize("command", [0, 1, 2, 3])
def test_an_option_of_a_shell_script_is_replaced(before: str, assignment: str, after: str, command: int) -> None:
    words = ["sh", "-c", before]
    job = batch_job(*words[:command], args=words[command:])
    set_value(job, assignment)
    container = job["spec"]["template"]["spec"]["containers"][0]
    expected = ["sh", "-c", after]
    assert (container["command"], container["args"]) == (expected[:command], expected[command:])


def test_options_and_fields_that_cannot_be_set_are_refused() -> None:
    for assignment in (
        "lr=1",
        "spec.template.spec.containers.7.image=x",
        "spec.template.spec.containers.main.image=x",
        "spec.template.spec.containers.0.image.tag=x",
        "spec.=1",
        "spec.backoffLimit={",
    ):
        with pytest.raises(YardError) as error:
            set_value(batch_job(), assignment)
        assert error.value.code == "BadOption"


def test_the_arguments_of_a_function_are_replaced() -> None:
    for processes in (1, 2):
        function = ScriptJob("j", "train:main", ("--file", "x.py"), processes=processes)
        job = script_objects(function, b"")[1]
        set_arguments(job, ["--lr", "1"])
        assert program_words(job)[-4:] == ["train", "main", "--lr", "1"]


def test_arguments_are_replaced() -> None:
    job = script("--lr", "0.1")
    set_arguments(job, ["--epochs", "3"])
    assert program_words(job) == ["python", "-u", "train.py", "--epochs", "3"]
    job = batch_job("python", args=["old"])
    set_arguments(job, ["new"])
    assert program_words(job) == ["python", "new"]
    with pytest.raises(YardError, match="cannot be replaced"):
        set_arguments(batch_job("sh", "-c", "echo train.py"), ["x"])


def test_a_job_becomes_a_manifest_again() -> None:
    job = batch_job("true")
    job["metadata"] |= {"labels": {"team": "a", "job-name": "j"}, "resourceVersion": "7"}
    job["spec"] |= {"selector": {"matchLabels": {"controller-uid": "u"}}, "suspend": True}
    job["spec"]["template"]["metadata"] = {"labels": {"controller-uid": "u", "own": "1"}}
    job["status"] = {"succeeded": 1}
    before = copy.deepcopy(job)
    again = renamed_job(job, "k")
    assert job == before
    assert again["metadata"] == {
        "name": "k",
        "namespace": "default",
        "annotations": {RERUN_OF: "j"},
        "labels": {"team": "a"},
    }
    assert again["spec"] == {
        "template": {"metadata": {"labels": {"own": "1"}}, "spec": before["spec"]["template"]["spec"]}
    }


def test_the_files_of_a_script_follow_the_name() -> None:
    job = script()
    job["metadata"]["namespace"] = "default"
    again = renamed_job(job, "train-b")
    for replica in again["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["volumes"][0]["configMap"]["name"] == "train-b-workspace"


def test_a_volume_of_the_user_is_no_workspace() -> None:
    volumes: list[Object] = [
        {"configMap": {"name": "other"}},
        {"emptyDir": {}},
        {"projected": {"sources": [{"secret": {}}]}},
    ]
    for volume in volumes:
        assert workspace_parts({"volumes": [{"name": "archive", **volume}]}) == 0


def test_a_suffix_is_replaced_and_not_repeated() -> None:
    assert base_name("train-x7k2p") == "train"
    assert base_name("mnist-ddp") == "mnist-ddp"
    assert len(base_name("x" * 63)) <= 57


def test_a_trainjob_is_changed_only_by_a_change_of_its_program() -> None:
    specs: list[Object] = [{}, {"trainer": None}, {"trainer": {}}]
    for spec in specs:
        job: Object = {"kind": "TrainJob", "spec": copy.deepcopy(spec)}
        assert program_words(job) == []
        assert job["spec"] == spec
        set_value(job, "DEBUG=1")
        assert job["spec"] == {"trainer": {"env": [{"name": "DEBUG", "value": "1"}]}}


def test_the_trainer_of_a_trainjob_is_its_program() -> None:
    trainer = {"image": "i", "command": ["python", "t.py"], "args": ["--lr", "0.1"]}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {"trainer": trainer}}
    job["metadata"] = {"name": "t", "namespace": "default"}
    copied = renamed_job(job, "t2")
    set_value(copied, "lr=0.2")
    set_value(copied, "DEBUG=1")
    assert copied["spec"]["trainer"]["args"] == ["--lr", "0.2"]
    assert copied["spec"]["trainer"]["env"] == [{"name": "DEBUG", "value": "1"}]
    assert program_options(copied)["--lr"] == "0.2"
    assert program_options({"kind": "TrainJob", "spec": {}}) == {"arguments": ""}  # all of it is in the runtime
