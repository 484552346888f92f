"""Every rule about a kind, judged by a real kube-apiserver: the same verdict, the same words, the same defaults."""

from __future__ import annotations

import json
import re

import pytest
from tests.api.differential import ours
from tests.api.differential.real import Judge
from tests.api.differential.recorded import CASES, as_line, judgements
from tests.api.differential.verdict import differences
from tests.support.kubernetes import Server


@pytest.fixture(scope="module")
def judge(kube_bare: Server) -> Judge:
    return Judge(kube_bare.admin)


@pytest.mark.parametrize("name", CASES)
def test_our_rules_say_what_a_real_server_said(name: str) -> None:
    case, judgement = CASES[name], judgements()[name]
    verdict = ours.created(case.obj) if case.change is None else ours.changed(case, judgement.made)
    assert differences(case, verdict, judgement.verdict) == []


_passing = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z|10\.96\.\d+\.\d+")


@pytest.mark.cluster
@pytest.mark.parametrize("name", CASES)
def test_the_record_says_what_a_real_server_says(judge: Judge, name: str) -> None:
    said, recorded = as_line(judge.judge(CASES[name])), as_line(judgements()[name])
    for line in (said, recorded):
        line.get("made", {}).get("metadata", {}).pop("resourceVersion", None)  # type: ignore[attr-defined]
        for unordered in ("causes", "warnings"):
            line[unordered] = sorted(line.get(unordered, ()))  # type: ignore[call-overload]
    assert _passing.sub("…", json.dumps(said, sort_keys=True)) == _passing.sub(
        "…", json.dumps(recorded, sort_keys=True)
    )
