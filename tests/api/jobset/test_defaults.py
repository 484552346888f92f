"""What a JobSet is when it is stored: defaults, repeated application of a manifest, and what may change."""

from __future__ import annotations

import copy

from torchyard.api.jobset.defaults import with_defaults
from torchyard.api.jobset.validation import EXCLUSIVE_PLACEMENT, JobSetStrategy, validate_update, warnings
from torchyard.api.objects import Object

STRATEGY = JobSetStrategy()


def jobset(**spec: object) -> Object:
    pod = {"containers": [{"name": "main", "image": "busybox"}]}
    job = {"name": "workers", "replicas": 2, "groupName": "default", "template": {"spec": {"template": {"spec": pod}}}}
    return {"metadata": {"name": "train"}, "spec": {"replicatedJobs": [job], **spec}}


def stored(**spec: object) -> Object:
    obj = jobset(**spec)
    STRATEGY.prepare_create(obj)
    return obj


def pod_template(obj: Object) -> Object:
    template: Object = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def test_defaults_are_those_of_the_webhook() -> None:
    rules = [{"action": "FailJobSet", "name": ""}, {"action": "RestartJobSet", "name": "mine"}]
    spec = stored(failurePolicy={"rules": rules}, volumeClaimPolicies=[{"templates": []}])["spec"]
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert [rule["name"] for rule in spec["failurePolicy"]["rules"]] == ["failurePolicyRule0", "mine"]
    assert spec["volumeClaimPolicies"][0]["retentionPolicy"] == {"whenDeleted": "Delete"}
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert (job["completionMode"], job["template"]["spec"]["restartPolicy"]) == ("Indexed", "OnFailure")


def test_the_manifest_of_an_existing_jobset_can_be_applied_again() -> None:
    old, again = stored(), jobset()
    STRATEGY.prepare_update(again, old)
    assert again == old
    assert not STRATEGY.validate_update(again, old)


def test_only_what_queues_write_may_change_and_only_while_suspended() -> None:
    for before, after in ((True, False), (False, True)):
        old, new = stored(suspend=before), stored(suspend=after)
        pod_template(new).update(metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}})
        pod_template(new)["spec"].update(nodeSelector={"e": "f"}, tolerations=[{"key": "g"}], schedulingGates=[])
        assert not validate_update(new, old)
    old, new = stored(), stored()
    pod_template(new)["spec"]["nodeSelector"] = {"e": "f"}
    assert [(err.field, err.message[-18:]) for err in validate_update(new, old)] == [
        ("spec.replicatedJobs", "field is immutable")
    ]
    changed = copy.deepcopy(stored(suspend=True))
    changed["spec"]["replicatedJobs"][0]["replicas"] = 3
    assert [err.field for err in validate_update(changed, stored(suspend=True))] == ["spec.replicatedJobs"]


def test_managed_by_is_immutable() -> None:
    new = stored(managedBy="kueue.x-k8s.io/multikueue")
    assert [err.field for err in validate_update(new, stored())] == ["spec.managedBy"]


def test_exclusive_placement_is_stored_with_a_warning() -> None:
    obj = stored()
    assert warnings(obj) == []
    obj["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    assert warnings(obj) == [EXCLUSIVE_PLACEMENT]
    obj["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = "true"
    assert warnings(obj) == []


def test_a_null_counts_as_absent() -> None:
    obj = jobset(network=None, successPolicy=None, startupPolicy=None, failurePolicy=None, volumeClaimPolicies=None)
    obj["spec"]["replicatedJobs"].append({"name": "b", "template": None})
    STRATEGY.prepare_create(obj)
    assert obj["spec"]["network"] == stored()["spec"]["network"]
    assert obj["spec"]["successPolicy"] == {"operator": "All"}
    assert obj["spec"]["replicatedJobs"][1]["template"]["spec"]["completionMode"] == "Indexed"
    assert with_defaults({"spec": {**stored()["spec"], "network": None}})["spec"] == stored()["spec"]


def test_a_negative_number_of_jobs_is_refused() -> None:
    obj = stored()
    obj["spec"]["replicatedJobs"][0]["replicas"] = -1
    assert [(err.field, err.message) for err in STRATEGY.validate(obj)] == [
        ("spec.replicatedJobs[0].replicas", "Invalid value: -1: must be greater than or equal to 0")
    ]
