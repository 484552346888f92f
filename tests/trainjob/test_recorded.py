"""Our JobSets, refusals and other objects of TrainJobs are those that upstream's Trainer 2.3.0 was recorded to make.

`recorded.json` is written by `record`. `REFUSED_EARLIER`, `NOT_CHECKED` and `SAME_ADDRESS` name the cases that differ.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from tests.trainjob.cases import CASES, Object
from tests.trainjob.record import RECORDED

from torchyard.api.jobset.crd import definition_object as jobset_definition
from torchyard.api.jobset.defaults import set_defaults
from torchyard.api.trainjob import names
from torchyard.api.trainjob.crd import definition_object
from torchyard.api.trainjob.runtime_crd import definition_objects
from torchyard.api.trainjob.validation import validate, validate_runtime, warnings
from torchyard.apiserver.crd.version import CustomVersion
from torchyard.core.trainjob import mpi
from torchyard.core.trainjob.jobset import make_jobset, pod_counts
from torchyard.core.trainjob.patches import patched_template
from torchyard.core.trainjob.pod_groups import pod_groups

ANSWERS: dict[str, Object] = json.loads(RECORDED.read_text())
# Why our answer is another one: upstream's would not work, or is refused later in words that say less.
REFUSED_EARLIER = {
    "torch-zero-nodes": "spec.trainer.numNodes: Invalid value: 0: must be greater than or equal to 1",
    "torch-negative-nodes": "spec.trainer.numNodes: Invalid value: -1: must be greater than or equal to 1",
    "torch-zero-processes": "spec.trainer.numProcPerNode: Invalid value: 0: must be greater than or equal to 1",
    "torch-negative-processes": "spec.trainer.numProcPerNode: Invalid value: -2: must be greater than or equal to 1",
    "patch-unknown-job": "must not have replicated job that doesn't exist in the runtime job template",
    "patch-unknown-container": "must not have container that doesn't exist in the runtime job node",
    "patch-unknown-init-container": "must not have initContainer that doesn't exist in the runtime job node",
    "patch-two-errors": "must not have replicated job that doesn't exist in the runtime job template",
}
# torchtune's models and the PriorityClass of Volcano groups are not checked.
NOT_CHECKED = {"torch-tune", "volcano"}
SAME_ADDRESS = {"torch-subdomain", "torch-other-job-name", "jax-other-job-name", "xgboost-other-job-name"}
_DENIED = "denied the request: "


def version(definition: Object) -> CustomVersion:
    return CustomVersion(definition["spec"]["names"]["kind"], definition["spec"]["versions"][0])


VERSIONS = {
    names.KIND: version(definition_object()),
    **{each["spec"]["names"]["kind"]: version(each) for each in definition_objects()},
    "JobSet": version(jobset_definition()),
}


def created(obj: Object) -> tuple[Object, list[str]]:
    """An object as the server stores it, and the errors of its schema."""
    stored = copy.deepcopy(obj)
    stored["metadata"] |= {"namespace": "$NAMESPACE", "uid": "uid"}
    if stored["kind"] == names.CLUSTER_RUNTIME_KIND:
        del stored["metadata"]["namespace"]
    VERSIONS[stored["kind"]].default(stored)
    return stored, [str(err) for err in VERSIONS[stored["kind"]].validate(stored)]


def refusal(case: Object) -> tuple[str, Object | None, Object | None]:
    """Our errors as one text, the runtime and the job."""
    runtime = None
    for runtime_object in case["runtimes"]:
        runtime, problems = created(runtime_object)
        problems = problems or [str(err) for err in validate_runtime(runtime)]
        if problems:
            return ", ".join(problems), None, None
    job, problems = created(case["job"])
    problems = problems or [str(err) for err in validate(job, runtime)]
    return ", ".join(problems), runtime, job


def normalized(value: Any) -> Any:
    """Without empty objects, which a Go server adds, and without a default of ports."""
    if isinstance(value, dict):
        inner = {key: normalized(item) for key, item in value.items() if key != "uid"}
        return {
            key: item for key, item in inner.items() if item not in ({}, None) and (key, item) != ("protocol", "TCP")
        }
    return [normalized(item) for item in value] if isinstance(value, list) else value


def without_injected(value: Object) -> Object:
    """Without what we set in jobs without `spec.trainer` and upstream does not."""
    for job in value["spec"]["replicatedJobs"]:
        for container in job["template"]["spec"]["template"]["spec"]["containers"]:
            prefixes = ("PET_", "JAX_", "DMLC_")
            container["env"] = [each for each in container.get("env") or () if not each["name"].startswith(prefixes)]
            container.pop("ports", None)
            if not container["env"]:
                del container["env"]
    return value


def made(name: str) -> Object:
    _, runtime, job = refusal(CASES[name])
    assert runtime is not None
    assert job is not None
    jobset = make_jobset(job, runtime)
    set_defaults(jobset)
    VERSIONS["JobSet"].default(jobset)
    return jobset


REFUSED = [name for name, answer in ANSWERS.items() if "runtime" in answer or "job" in answer]


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in NOT_CHECKED])
def test_bad_input_is_refused_in_upstreams_words(name: str) -> None:
    text = ANSWERS[name].get("runtime") or ANSWERS[name]["job"]
    ours, _, _ = refusal(CASES[name])
    if "cannot unmarshal" in text:  # Go's decoder, before the schema
        assert "must be of type integer" in ours
    elif _DENIED in text:
        assert ours == without_times(without_brackets(text.split(_DENIED)[1]))
    else:
        expected = without_brackets(text.split(" is invalid: ")[1])
        assert ours.startswith(expected.split(", <nil>: Invalid value: null: some validation")[0])


def without_brackets(text: str) -> str:
    return text[1:-1] if text.startswith("[") else text


def without_times(text: str) -> str:
    return re.sub(r'"time":"[^"]*",', "", text)


def test_numbers_that_upstream_cannot_decode_are_refused() -> None:
    case = copy.deepcopy(CASES["torch-nodes"])
    case["job"]["spec"]["trainer"]["numNodes"] = 2**31
    ours, _, _ = refusal(case)
    assert "spec.trainer.numNodes in body should be less than or equal to 2147483647" in ours
    jobset = made("torch-nodes")
    jobset["spec"]["replicatedJobs"][0]["replicas"] = 2**31
    jobset["spec"] |= {"ttlSecondsAfterFinished": 2**31, "failurePolicy": {"maxRestarts": 2**31}}
    assert len([err for err in VERSIONS["JobSet"].validate(jobset) if "less than or equal to" in str(err)]) == 3


@pytest.mark.parametrize("name", REFUSED_EARLIER)
def test_what_upstream_accepts_and_cannot_run_is_refused(name: str) -> None:
    ours, _, _ = refusal(CASES[name])
    assert REFUSED_EARLIER[name] in ours


@pytest.mark.parametrize(
    "name", [name for name, answer in ANSWERS.items() if "jobset" in answer and name not in REFUSED_EARLIER]
)
def test_the_jobset_is_upstreams(name: str) -> None:
    ours, theirs = comparable_jobsets(name, normalized(made(name)), normalized(ANSWERS[name]["jobset"]))
    assert ours == theirs


def comparable(name: str, ours: Object, theirs: Object) -> tuple[Object, Object]:
    """What a server with our operator showed of a case, and what upstream showed, without the known differences."""
    ours, theirs = (json.loads(json.dumps(answer)) for answer in (ours, theirs))
    for refused in ("runtime", "job"):
        texts = [answer.get(refused, "") for answer in (ours, theirs)]
        if all(texts):
            ours[refused], theirs[refused] = (without_times(_refusal_of(text)) for text in texts)
    jobsets = [answer.get("jobset") for answer in (ours, theirs)]
    if all(jobsets):
        ours["jobset"], theirs["jobset"] = comparable_jobsets(name, *map(normalized, jobsets))
    return ours, theirs


def _refusal_of(text: str) -> str:
    return without_brackets(text.rpartition(_DENIED)[2].rpartition(" is invalid: ")[2])


def comparable_jobsets(name: str, ours: Object, theirs: Object) -> tuple[Object, Object]:
    if not CASES[name]["job"]["spec"].get("trainer") and CASES[name]["job"]["spec"].get("trainer") != {}:
        ours, theirs = without_injected(ours), without_injected(theirs)
    if name in SAME_ADDRESS:
        text = json.dumps(ours).replace("job-workers-0-0.job", "job-node-0-0.job")
        ours = json.loads(text.replace("job-node-0-0.sub", "job-node-0-0.job"))
    if "mlPolicy" not in CASES[name]["runtimes"][0]["spec"]:  # then upstream ignores resourcesPerNode
        for jobset in (ours, theirs):
            for job in jobset["spec"]["replicatedJobs"]:
                job["template"]["spec"]["template"]["spec"]["containers"][0].pop("resources", None)
    _ignore_lost_ports(ours, theirs)
    return ours, theirs


def _ignore_lost_ports(ours: Object, theirs: Object) -> None:
    """Upstream's list of ports replaces the runtime's; ours is added to it."""
    for mine, other in zip(ours["spec"]["replicatedJobs"], theirs["spec"]["replicatedJobs"], strict=True):
        lists = [each["template"]["spec"]["template"]["spec"]["containers"] for each in (mine, other)]
        for container, upstream in zip(*lists, strict=True):
            if "ports" in upstream and "ports" in container:
                assert upstream["ports"][-1] in container["ports"]
                container["ports"] = upstream["ports"]


@pytest.mark.parametrize("name", [name for name, answer in ANSWERS.items() if "podgroups" in answer])
def test_pod_groups_are_upstreams(name: str) -> None:
    _, runtime, job = refusal(CASES[name])
    assert runtime is not None
    assert job is not None
    ours = [normalized(group) for group in pod_groups(job, runtime, make_jobset(job, runtime))]
    assert ours == [normalized(group) for group in ANSWERS[name]["podgroups"].values()]


@pytest.mark.parametrize(
    "name", [name for name, answer in ANSWERS.items() if "job-mpi-hostfile" in answer.get("configmaps", {})]
)
def test_hostfiles_are_upstreams(name: str) -> None:
    _, runtime, job = refusal(CASES[name])
    assert runtime is not None
    assert job is not None
    policy = runtime["spec"]["mlPolicy"]
    counts = pod_counts(job, runtime, patched_template(runtime, job)["spec"])
    assert mpi.hostfile(job, policy, counts, "job")["data"] == ANSWERS[name]["configmaps"]["job-mpi-hostfile"]["data"]


def test_a_deprecated_runtime_is_warned_of() -> None:
    _, runtime, job = refusal(CASES["runtime-deprecated"])
    assert runtime is not None
    assert job is not None
    (expected,) = ANSWERS["runtime-deprecated"]["warnings"]
    assert [f"299 - {json.dumps(text)}" for text in warnings(job, runtime)] == [expected]
