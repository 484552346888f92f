"""Links to experiment trackers, from the environment of a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes import ROOT

from torchyard.core.run.tracking import TRACKERS, tracking_links


def job(**variables: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    secret = {"name": "MLFLOW_TRACKING_URI", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    template = {"spec": {"containers": [{"name": "main", "env": [secret, *env]}]}}
    return {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("variables", "links"),
    [
        ({}, []),
        ({"TENSORBOARD_URL": "http://tb:6006"}, ["http://tb:6006"]),
        ({"TENSORBOARD_URL": "javascript:alert(1)", "MLFLOW_TRACKING_URI": "file:///mlruns"}, []),
        ({"TENSORBOARD_URL": "http://tb:6006 x"}, []),
        ({"MLFLOW_TRACKING_URI": "https://mlflow.example"}, ["https://mlflow.example"]),
        ({"WANDB_RUN_URL": "https://wandb.ai/a/b/runs/c", "WANDB_PROJECT": "x"}, ["https://wandb.ai/a/b/runs/c"]),
        ({"WANDB_BASE_URL": "https://wandb.example"}, ["https://wandb.example"]),
        ({"WANDB_ENTITY": "team", "WANDB_PROJECT": "a b"}, ["https://wandb.ai/team/a%20b"]),
        (
            {"WANDB_ENTITY": "team", "WANDB_PROJECT": "p", "WANDB_RUN_ID": "r", "WANDB_BASE_URL": "https://w.example/"},
            ["https://w.example/team/p/runs/r"],
        ),
        (
            {"WANDB_ENTITY": "t", "WANDB_PROJECT": "p", "WANDB_BASE_URL": "https://api.wandb.ai"},
            ["https://wandb.ai/t/p"],
        ),
        ({"WANDB_ENTITY": "t", "WANDB_PROJECT": "p", "WANDB_MODE": "offline"}, []),
        ({"WANDB_PROJECT": "p"}, []),
    ],
)
def test_links_are_those_that_the_variables_name(variables: dict[str, str], links: list[str]) -> None:
    assert [link.url for link in tracking_links(job(**variables))] == links


def test_jobs_without_templates_have_no_links() -> None:
    assert tracking_links({"kind": "TrainJob", "metadata": {}, "spec": {}}) == ()
    assert tracking_links({"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "a"}]}}) == ()


def test_the_console_knows_the_same_trackers() -> None:
    source = (Path(ROOT) / "console/src/pages/job/tracking.tsx").read_text()
    rows = re.findall(r"\['([^']+)', \[([^\]]*)\]\]", source)
    assert {name: tuple(re.findall(r"'(\w+)'", keys)) for name, keys in rows} == TRACKERS
