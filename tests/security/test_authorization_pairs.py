"""Our authorizer and a real kube-apiserver's give the same verdicts on generated roles, bindings and questions.

Run as a program, this module records the real server's verdicts in `data/`; a machine without a real server compares
with those.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from tests.apiserver.access.memory_lister import MemoryLister
from tests.conftest import HOUSEKEEPING
from tests.security.generated_policy import NAMESPACES, RBAC, VERBS, GeneratedPolicy, generate
from tests.support.effort import FULL
from tests.support.http import Client
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.apiserver.access.bootstrap_policy import bootstrap_policy
from torchyard.apiserver.access.rbac import Authorizer
from torchyard.apiserver.access.reviews import subject_access_review

RECORDED = Path(__file__).parent / "data" / "authorization_verdicts.json"
RBAC_PATH = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
RECORDED_SEEDS = (1, 2, 3, 4)
LONG_SEEDS = range(100, 140)
QUESTIONS = 1000


def test_recorded_verdicts_of_a_real_server_are_ours_too() -> None:
    recorded = json.loads(RECORDED.read_text())
    for seed in RECORDED_SEEDS:
        policy = generate(seed, QUESTIONS)
        assert recorded[str(seed)]["questions"] == _digest(policy), "record the verdicts again"
        authorizer = Authorizer(MemoryLister(*bootstrap_policy(), *policy.objects))
        verdicts = [subject_access_review({"spec": spec}, authorizer)["allowed"] for spec in policy.reviews]
        differences = [
            spec
            for spec, ours, theirs in zip(
                policy.reviews, verdicts, _unpack(recorded[str(seed)]["allowed"], QUESTIONS), strict=True
            )
            if ours != theirs
        ]
        assert differences == []


def test_recorded_pairs_cover_every_verb_target_and_verdict() -> None:
    """Both verdicts, for every verb, on resources and subresources, with and without a name in the question."""
    recorded = json.loads(RECORDED.read_text())
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    total = 0
    for seed in RECORDED_SEEDS:
        verdicts = _unpack(recorded[str(seed)]["allowed"], QUESTIONS)
        for spec, allowed in zip(generate(seed, QUESTIONS).reviews, verdicts, strict=True):
            total += 1
            attributes = spec.get("resourceAttributes")
            if attributes is None:
                counts[spec["nonResourceAttributes"]["verb"], "path", False, allowed] += 1
            else:
                target = "subresource" if "subresource" in attributes else "resource"
                counts[attributes.get("verb", ""), target, "name" in attributes, allowed] += 1
    assert total >= 3000
    expected = [
        *product(VERBS, ("resource", "subresource"), (False, True), (False, True)),
        *product(("get", "post", "put", "delete"), ("path",), (False,), (False, True)),
    ]
    assert [key for key in expected if not counts[key]] == []


@pytest.fixture(scope="module")
def servers(yard: Server, kube: Server) -> Iterator[tuple[Server, Server]]:
    for server in (yard, kube):
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            assert server.admin.post("/api/v1/namespaces", namespace).status in (201, 409)
    yield yard, kube


@pytest.mark.cluster
@pytest.mark.parametrize("seed", [*RECORDED_SEEDS, *(LONG_SEEDS if FULL else ())])
def test_access_reviews_have_the_real_servers_verdicts(servers: tuple[Server, Server], seed: int) -> None:
    policy = generate(seed, QUESTIONS)
    ours, theirs = (_statuses(server, policy) for server in servers)
    differences = [
        (spec, ours_status, theirs_status)
        for spec, ours_status, theirs_status in zip(policy.reviews, ours, theirs, strict=True)
        if _comparable(ours_status) != _comparable(theirs_status)
    ]
    assert differences == []
    if seed in RECORDED_SEEDS:
        recorded = _unpack(json.loads(RECORDED.read_text())[str(seed)]["allowed"], QUESTIONS)
        assert [status["allowed"] for status in theirs] == recorded


def _comparable(status: Object) -> Object:
    """The binding named as the reason is any of those that allow; the missing roles of a denial have no order."""
    reason = status.get("reason", "")
    if status["allowed"]:
        return {**status, "reason": reason.partition(' "')[0].rpartition(" ")[0]}
    return {**status, "reason": sorted(reason.replace("[", "").replace("]", "").removeprefix("RBAC: ").split(", "))}


def _statuses(server: Server, policy: GeneratedPolicy) -> list[Object]:
    """The status of every review on a server that holds the policy for as long as this takes."""
    with ThreadPoolExecutor(4) as threads:
        try:
            for created in threads.map(lambda obj: server.admin.post(_path(obj), obj), policy.objects):
                assert created.status == 201, created
            _wait_until_in_force(server.admin, policy)
            return list(threads.map(lambda spec: _review(server.admin, spec), policy.reviews))
        finally:
            objects = [*policy.objects, *_markers(policy.seed)]
            list(threads.map(lambda obj: server.admin.delete(f"{_path(obj)}/{_name(obj)}"), objects))


def _review(client: Client, spec: Object) -> Object:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = client.post(REVIEWS, review)
    assert answer.status == 201, (spec, answer)
    status: Object = answer.json["status"]
    return status


def _wait_until_in_force(client: Client, policy: GeneratedPolicy) -> None:
    """Until the aggregated roles have their rules, and the authorizer has seen the last role and binding."""
    for obj in policy.objects:
        if "aggregationRule" in obj:
            eventually(partial(_is_aggregated, client, obj, policy), "the aggregation")
    # The authorizer reads caches that follow: markers, written last, show that they have caught up.
    for obj in _markers(policy.seed):
        assert client.post(_path(obj), obj).status == 201
    for role in ("Role", "ClusterRole"):
        attributes = {"verb": "get", "resource": "pods", "namespace": NAMESPACES[0]}
        spec = {"user": f"pairs-{policy.seed}-{role}", "resourceAttributes": attributes}
        eventually(partial(_is_allowed, client, spec), "the policy")


def _is_aggregated(client: Client, role: Object, policy: GeneratedPolicy) -> bool:
    expected = [
        rule for part in policy.objects if _is_selected(part, role["aggregationRule"]) for rule in part["rules"]
    ]
    rules = client.get(f"{_path(role)}/{_name(role)}").json.get("rules") or ()
    return all(rule in rules for rule in expected)


def _is_allowed(client: Client, spec: Object) -> bool:
    return bool(_review(client, spec)["allowed"])


def _markers(seed: int) -> list[Object]:
    """A role and a binding of each scope; a user named after the role is allowed to read pods."""
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    markers: list[Object] = []
    for role, namespace in (("Role", NAMESPACES[0]), ("ClusterRole", "")):
        name = f"pairs-{seed}-marker"
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        subject = {"apiGroup": RBAC, "kind": "User", "name": f"pairs-{seed}-{role}"}
        reference = {"apiGroup": RBAC, "kind": role, "name": name}
        head = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
        markers.append({**head, "kind": role, "rules": [rule]})
        markers.append({**head, "kind": f"{role}Binding", "subjects": [subject], "roleRef": reference})
    return markers


def _is_selected(part: Object, aggregation: Object) -> bool:
    labels = part["metadata"].get("labels") or {}
    for selector in aggregation["clusterRoleSelectors"]:
        for key, value in (selector.get("matchLabels") or {}).items():
            if labels.get(key) == value:
                return True
        for expression in selector.get("matchExpressions") or ():
            if labels.get(expression["key"]) in expression["values"]:
                return True
    return False


def _path(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace")
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"{RBAC_PATH}/{scope}{obj['kind'].lower()}s"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _digest(policy: GeneratedPolicy) -> str:
    return hashlib.sha256(json.dumps([policy.objects, policy.reviews]).encode()).hexdigest()[:16]


def _pack(verdicts: list[bool]) -> str:
    bits = "".join("1" if allowed else "0" for allowed in verdicts)
    return f"{int(bits, 2):0{-(-len(bits) // 4)}x}"


def _unpack(text: str, count: int) -> list[bool]:
    return [bit == "1" for bit in f"{int(text, 16):0{count}b}"]


def main() -> None:
    recorded = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        Kubernetes(Path(directory) / "kube", controllers=HOUSEKEEPING) as kube,
    ):
        for name in NAMESPACES:
            kube.admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for seed in RECORDED_SEEDS:
            policy = generate(seed, QUESTIONS)
            digest = _digest(policy)
            verdicts = [status["allowed"] for status in _statuses(kube, policy)]
            recorded[str(seed)] = {"questions": digest, "allowed": _pack(verdicts)}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
