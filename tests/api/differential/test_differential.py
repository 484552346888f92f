"""Validation rules of every kind against kube-apiserver: the same verdict, messages and defaults."""

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
def test_our_rules_match_the_recorded_verdicts(name: str) -> None:
    case, judgement = CASES[name], judgements()[name]
    verdict = ours.created(case.obj) if case.change is None else ours.changed(case, judgement.stored)
    assert differences(case, verdict, judgement.verdict) == []


# Addresses of Services: of the server, or of the range that other tests add.
_passing = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z|10\.(?:96|200)\.\d+\.\d+")


@pytest.mark.cluster
@pytest.mark.parametrize("name", CASES)
def test_the_recorded_verdicts_match_kube_apiserver(judge: Judge, name: str) -> None:
    answered, recorded = as_line(judge.judge(CASES[name])), as_line(judgements()[name])
    for line in (answered, recorded):
        line.get("stored", {}).get("metadata", {}).pop("resourceVersion", None)  # type: ignore[attr-defined]
        for unordered in ("causes", "warnings"):
            line[unordered] = sorted(line.get(unordered, ()))  # type: ignore[call-overload]
    assert _passing.sub("…", json.dumps(answered, sort_keys=True)) == _passing.sub(
        "…", json.dumps(recorded, sort_keys=True)
    )
