"""Rules of definitions that people run, and rules that must not hold up the server."""

from __future__ import annotations

import pytest
from tests.apiserver.crd import torchyard_server

from torchyard.api.objects import Object
from torchyard.apiserver.crd.cel_rules.values import escape_property_name


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("plain", "plain"),
        ("a-b", "a__dash__b"),
        ("a.b", "a__dot__b"),
        ("a/b", "a__slash__b"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("1st", None),
        ("a b", None),
        ("", None),
    ],
)
def test_property_names_are_escaped_to_identifiers(name: str, identifier: str | None) -> None:
    assert escape_property_name(name) == identifier


# The forms of rules that training, job-set and queueing definitions use.
RULES: list[tuple[str, Object, Object, bool]] = [
    ("self == oldSelf", {"queue": "a"}, {"queue": "b"}, False),
    ("!has(oldSelf.queue) || has(self.queue)", {"queue": "a"}, {}, False),
    ("has(self.queue) == has(oldSelf.queue)", {"queue": "a"}, {"queue": "b"}, True),
    ("self.jobs.all(j, !has(j.n) || j.n >= 1)", {}, {"jobs": [{"name": "a", "n": 0}]}, False),
    ("self.jobs.all(x, self.jobs.exists_one(y, y.name == x.name))", {}, {"jobs": [{"name": "a"}]}, True),
    ("size(self.jobs.filter(x, x.name.startsWith('l'))) < 2", {}, {"jobs": [{"name": "l1"}, {"name": "l2"}]}, False),
    ("!has(self.jobs) || self.jobs.size() > 0", {}, {"jobs": []}, False),
    ("self.queue.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", {}, {"queue": "Not-A-Label"}, False),
    ("!(has(self.queue) && has(self.class))", {}, {"queue": "a", "class": "b"}, False),
    ("has(self.queue) || !has(self.class)", {}, {"class": "b"}, False),
    ("self.labels.all(k, size(k) < 64 && self.labels[k] != '')", {}, {"labels": {"a": ""}}, False),
    ("self.labels.all(k, !(k in oldSelf.labels) || oldSelf.labels[k] == self.labels[k])",
     {"labels": {"a": "b"}}, {"labels": {"a": "c"}}, False),
    ("['Never', 'OnFailure'].exists(p, p == self.class)", {}, {"class": "Always"}, False),
    ("self.class in ['Never', 'OnFailure']", {}, {"class": "Never"}, True),
]  # fmt: skip
FIELDS: Object = {
    "queue": {"type": "string"},
    "class": {"type": "string"},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "jobs": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        },
    },
}


def verdict(rule: str, fields: Object, *writes: Object) -> list[Object]:
    case = {"spec": fields, "rules": [{"rule": rule, "message": "broken"}]}
    content: Object = {"create": {"spec": writes[0]}}
    if len(writes) > 1:
        content["update"] = {"spec": writes[1]}
    result = torchyard_server.verdict("widget", {**case, "objects": [content]})
    assert "objects" in result, result
    return list(result["objects"][0])


@pytest.mark.parametrize(("rule", "before", "after", "holds"), RULES)
def test_rules_of_training_and_kueue_crds_are_evaluated(rule: str, before: Object, after: Object, holds: bool) -> None:
    results = verdict(rule, FIELDS, before, after) if before else verdict(rule, FIELDS, after)
    if holds:
        assert results[-1]["code"] in (200, 201), results
    else:
        assert results[-1]["causes"] == [["FieldValueInvalid", "spec", 'Invalid value: "object": broken']]


def test_a_rule_over_the_cost_limit_fails_and_stops_validation() -> None:
    fields: Object = {"l": {"type": "array", "items": {"type": "integer"}}}
    (result,) = verdict("self.l.all(x, self.l.all(y, self.l.all(z, x + y + z >= 0)))", fields, {"l": [1] * 500})
    ((reason, field, message),) = result["causes"]
    assert (reason, field) == ("FieldValueInvalid", "spec")
    assert message.endswith("no further validation rules will be run due to call cost exceeds limit for rule: broken")


def test_crds_without_rules_do_not_import_cel() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from tests.apiserver.crd import cases, torchyard_server;"
        "torchyard_server.serve(torchyard_server.establish(cases.definition('w', {})));"
        "print([name for name in sys.modules if name.startswith('torchyard.apiserver.cel')])"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
