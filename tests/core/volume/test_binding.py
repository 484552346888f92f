"""Binding of claims and volumes: every rule of the binder, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.storage import claim, storage_class, stored, volume

from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.core.volume import local
from torchyard.core.volume.claims import ClaimView, decide_claim
from torchyard.core.volume.match import best_volume
from torchyard.core.volume.protection import unprotect_claim, unprotect_volume
from torchyard.core.volume.view import CLAIM, VOLUME, VolumeDecision
from torchyard.core.volume.volumes import VolumeView, decide_volume

FREE = {"phase": "Available"}


def reference(to: Object, **without: None) -> Object:
    fields = {key: to["metadata"][key] for key in ("namespace", "name", "uid")}
    return {key: value for key, value in fields.items() if key not in without}


def parts(decision: VolumeDecision) -> list[tuple[str, str]]:
    return [(write.kind, "status" if write.status is not None else "spec") for write in decision.writes]


def event_reasons(decision: VolumeDecision) -> list[str]:
    return [event.reason for event in decision.events]


def test_a_binding_is_four_writes_in_an_order_that_can_be_interrupted() -> None:
    wants, has = stored(claim(), status={"phase": "Pending"}), stored(volume("v", "5Gi"), status=FREE)
    decision = decide_claim(ClaimView(wants, volumes=[has]))
    assert parts(decision) == [(VOLUME, "spec"), (VOLUME, "status"), (CLAIM, "spec"), (CLAIM, "status")]
    assert decision.writes[0].object["spec"]["claimRef"]["uid"] == wants["metadata"]["uid"]
    assert decision.writes[2].object["spec"]["volumeName"] == "v"
    assert decision.writes[3].status == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "5Gi"},
    }


@pytest.mark.parametrize("done", [1, 2, 3, 4])
def test_a_pass_after_an_interruption_does_the_rest(done: int) -> None:
    wants, has = stored(claim(), status={"phase": "Pending"}), stored(volume("v"), status=FREE)
    for write in decide_claim(ClaimView(wants, volumes=[has])).writes[:done]:
        before = has if write.kind == VOLUME else wants
        after = {**before, "status": write.status} if write.status is not None else {**write.object}
        if write.status is None:
            after["status"] = before["status"]
        has, wants = (after, wants) if write.kind == VOLUME else (has, after)
    rest = decide_claim(ClaimView(wants, named=has if wants["spec"].get("volumeName") else None, volumes=[has]))
    assert len(rest.writes) == 4 - done


@pytest.mark.parametrize(
    ("wants", "named", "classes", "reasons", "phase"),
    [
        (claim(cls=""), None, [], [messages.FAILED_BINDING], "Pending"),
        (claim(cls="x"), None, [], [messages.PROVISIONING_FAILED], "Pending"),
        (claim(cls="x"), None, [storage_class("x")], ["ExternalProvisioning"], "Pending"),
        (claim(cls="x"), None, [storage_class("x", waits=True)], ["WaitForFirstConsumer"], "Pending"),
        (
            claim(cls="x"),
            None,
            [storage_class("x", provisioner=messages.NO_PROVISIONER)],
            [messages.PROVISIONING_FAILED],
            "Pending",
        ),
        (
            claim(cls="x"),
            None,
            [storage_class("y", annotations={messages.ALIASES: "w, x"})],
            [messages.ALIAS_USED, "ExternalProvisioning"],
            "Pending",
        ),
        (
            claim(cls="x"),
            None,
            [storage_class("y", annotations={messages.ALIASES: "*"})],
            [messages.ALIAS_USED, "ExternalProvisioning"],
            "Pending",
        ),
        (claim(volumeName="v"), None, [], [], "Pending"),
        (claim(volumeName="v"), volume("v", "1Mi"), [], [messages.MISMATCH], "Pending"),
        (claim(volumeName="v"), volume("v", claimRef={"name": "other"}), [], [messages.FAILED_BINDING], "Pending"),
    ],
)
def test_an_unbound_claim_gets_an_event(
    wants: Object, named: Object | None, classes: list[Object], reasons: list[str], phase: str
) -> None:
    has = stored(named, status=FREE) if named else None
    decision = decide_claim(ClaimView(stored(wants), named=has, classes=classes))
    assert event_reasons(decision) == reasons
    assert decision.writes[-1].status == {"phase": phase}


def test_a_claim_without_a_class_gets_the_default_class() -> None:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    decision = decide_claim(ClaimView(stored(claim(cls=None)), classes=[storage_class("d", annotations=marks)]))
    assert [write.object["spec"]["storageClassName"] for write in decision.writes] == ["d"]


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (None, messages.LOST),
        (volume("v", claimRef={"namespace": "n", "name": "data", "uid": "another"}), messages.MISBOUND),
    ],
)
def test_a_bound_claim_that_has_lost_its_volume_is_lost_once(named: Object | None, reason: str) -> None:
    has = stored(named) if named else None
    wants = stored(claim(volumeName="v"), completed="yes", status={"phase": "Bound", "capacity": {"storage": "1Gi"}})
    decision = decide_claim(ClaimView(wants, named=has))
    assert (event_reasons(decision), decision.writes[0].status) == ([reason], {"phase": "Lost"})
    again = decide_claim(ClaimView({**wants, "status": {"phase": "Lost"}}, named=has))
    assert (again.writes, again.events) == ([], [])


def test_a_terminating_claim_is_not_bound() -> None:
    going = stored(claim())
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide_claim(ClaimView(going, volumes=[stored(volume("v"), status=FREE)])).writes == []


def _volume(bound_to: Object, status: str = "Bound", **marks: str) -> Object:
    return stored(volume("v", claimRef=reference(bound_to)), status={"phase": status}, **marks)


@pytest.mark.parametrize(
    ("has", "pvc", "phase"),
    [
        (stored(volume("v")), None, "Available"),
        (stored(volume("v", claimRef={"namespace": "n", "name": "data"})), None, "Available"),
        (_volume(stored(claim(volumeName="v"))), None, "Released"),
        (_volume(stored(claim(volumeName="v"))), stored(claim(volumeName="v"), uid="a later one"), "Released"),
        (_volume(stored(claim(volumeName="v")), "Pending"), stored(claim(volumeName="v")), "Bound"),
        (_volume(stored(claim(volumeName="w")), ours="yes"), stored(claim(volumeName="w")), "Available"),
        (_volume(stored(claim(volumeName="w"))), stored(claim(volumeName="w")), "Available"),
    ],
)
def test_the_phase_of_a_volume_follows_its_claim(has: Object, pvc: Object | None, phase: str) -> None:
    decision = decide_volume(VolumeView(has, pvc))
    status = decision.writes[-1].status
    assert status is not None and status["phase"] == phase


@pytest.mark.parametrize(
    ("policy", "phase", "reasons"),
    [
        ("Retain", "Released", []),
        ("Delete", "Failed", ["VolumeFailedDelete"]),
        ("Recycle", "Failed", ["VolumeFailedRecycle"]),
    ],
)
def test_a_volume_that_cannot_be_reclaimed_fails_with_a_message(policy: str, phase: str, reasons: list[str]) -> None:
    has = _volume(stored(claim()))
    has["spec"]["persistentVolumeReclaimPolicy"] = policy
    decision = decide_volume(VolumeView(has))
    status = decision.writes[0].status
    assert status is not None and (status["phase"], event_reasons(decision)) == (phase, reasons)
    settled = decide_volume(VolumeView({**has, "status": status}))
    assert (settled.writes, settled.events) == ([], [])


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.booleans()), max_size=6),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_the_chosen_volume_fits_and_no_better_one_exists(
    candidates: list[tuple[int, int, bool]], size: int, count: int
) -> None:
    every = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]
    volumes = [
        stored(
            volume(f"v{number}", f"{gib}Gi", accessModes=every[:modes]), status=FREE if free else {"phase": "Released"}
        )
        for number, (gib, modes, free) in enumerate(candidates)
    ]
    fits = [(modes, gib) for gib, modes, free in candidates if free and gib >= size and modes >= count]
    best = best_volume(stored(claim(size=f"{size}Gi", accessModes=every[:count])), volumes)
    if best is None:
        assert fits == []
    else:
        assert (len(best["spec"]["accessModes"]), int(best["spec"]["capacity"]["storage"][:-2])) == min(fits)


@pytest.mark.parametrize(
    ("node", "claim_name", "goes"), [("n1", "data", False), ("", "data", True), ("n1", "other", True)]
)
def test_a_claim_is_protected_while_scheduled_pods_use_it(node: str, claim_name: str, goes: bool) -> None:
    going = stored(claim())
    going["metadata"] |= {"deletionTimestamp": "now", "finalizers": ["kubernetes.io/pvc-protection", "mine"]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"nodeName": node, "volumes": volumes}}
    released = unprotect_claim(going, [pod])
    assert (released is not None) is goes
    assert released is None or released["metadata"]["finalizers"] == ["mine"]


@pytest.mark.parametrize(("phase", "goes"), [("Bound", False), ("Released", True), ("Available", True)])
def test_a_volume_is_protected_while_it_is_bound(phase: str, goes: bool) -> None:
    going = stored(volume("v"), status={"phase": phase})
    going["metadata"] |= {"deletionTimestamp": "now", "finalizers": ["kubernetes.io/pv-protection"]}
    assert (unprotect_volume(going) is not None) is goes


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"volumeMode": "Block"}, "block device"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "Selector"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}, "dataSource"),
    ],
)
def test_claims_that_a_directory_cannot_satisfy_are_rejected(spec: Object, why: str) -> None:
    reason = local.unsupported_reason(stored(claim(**spec)))
    assert (why in reason) if why else reason == ""


def test_a_local_volume_is_a_directory_with_affinity_to_its_node() -> None:
    wants = stored(claim("data", "2Gi", cls="csi-cephfs-sc", accessModes=["ReadWriteMany"]), uid="u-1")
    pv = local.local_volume(wants, local.local_class(), root=Path("/state/volumes"), node="here")
    spec = pv["spec"]
    assert spec["local"]["path"] == "/state/volumes/pvc-u-1_n_data"
    assert (spec["storageClassName"], spec["accessModes"], spec["capacity"]) == (
        "csi-cephfs-sc",
        ["ReadWriteMany"],
        {"storage": "2Gi"},
    )
    assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["here"]
