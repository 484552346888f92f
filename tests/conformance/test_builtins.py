"""Points 51 to 56: defaults and validation of the built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.objects import Object, Space, claim, deployment, job, path, pod, service
from tests.support.http import STRATEGIC, Client
from tests.support.waiting import eventually


@pytest.mark.point(51)
def test_a_pod_gets_its_defaults(space: Space) -> None:
    container = {
        "ports": [{"containerPort": 80}],
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "livenessProbe": {"httpGet": {"port": 80}},
    }
    spec = space.make("pods", pod("p", container=container))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["enableServiceLinks"] is True
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["tolerations"] == [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    main = spec["containers"][0]
    assert main["imagePullPolicy"] == "Always"
    assert main["terminationMessagePath"] == "/dev/termination-log"
    assert main["terminationMessagePolicy"] == "File"
    assert main["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert main["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert main["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    assert main["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert main["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.mark.point(51)
@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("host:5000/busybox", "Always"),
        ("host:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(space: Space, image: str, policy: str) -> None:
    created = space.api.post(space.path("pods"), pod("p", container={"image": image}), query={"dryRun": "All"})
    assert created.json["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.point(51)
def test_status_and_quality_of_service_are_set(space: Space) -> None:
    both = {"cpu": "1", "memory": "1Gi"}
    for resources, quality in (
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": both}, "Guaranteed"),
        ({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}}, "Burstable"),
    ):
        created = space.api.post(
            space.path("pods"), pod("p", container={"resources": resources}), query={"dryRun": "All"}
        )
        assert created.json["status"] == {"phase": "Pending", "qosClass": quality}, resources


BAD_PODS: list[tuple[str, Object, str, str]] = [
    ("no containers", pod("p", spec={"containers": []}), "spec.containers", "FieldValueRequired"),
    ("no image", pod("p", container={"image": ""}), "spec.containers[0].image", "FieldValueRequired"),
    ("no name", pod("p", container={"name": ""}), "spec.containers[0].name", "FieldValueRequired"),
    ("a bad name", pod("p", container={"name": "A_b"}), "spec.containers[0].name", "FieldValueInvalid"),
    (
        "a name twice",
        pod("p", spec={"containers": [{"name": "a", "image": "x"}] * 2}),
        "spec.containers[1].name",
        "FieldValueDuplicate",
    ),
    ("a policy", pod("p", spec={"restartPolicy": "Sometimes"}), "spec.restartPolicy", "FieldValueNotSupported"),
    ("a dns policy", pod("p", spec={"dnsPolicy": "Mine"}), "spec.dnsPolicy", "FieldValueNotSupported"),
    (
        "a mount of nothing",
        pod("p", container={"volumeMounts": [{"name": "none", "mountPath": "/x"}]}),
        "spec.containers[0].volumeMounts[0].name",
        "FieldValueNotFound",
    ),
    (
        "a port",
        pod("p", container={"ports": [{"containerPort": 70000}]}),
        "spec.containers[0].ports[0].containerPort",
        "FieldValueInvalid",
    ),
    (
        "requests over limits",
        pod("p", container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
        "spec.containers[0].resources.requests",
        "FieldValueInvalid",
    ),
    (
        "half a GPU",
        pod("p", container={"resources": {"limits": {"nvidia.com/gpu": "500m"}}}),
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
        "FieldValueInvalid",
    ),
    ("a volume", pod("p", spec={"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}), "spec.v", ""),
    ("a deadline", pod("p", spec={"activeDeadlineSeconds": 0}), "spec.activeDeadlineSeconds", "FieldValueInvalid"),
    ("an env name", pod("p", container={"env": [{"name": "a=b"}]}), "spec.containers[0].env[0].name", ""),
    ("a toleration", pod("p", spec={"tolerations": [{"operator": "Is"}]}), "spec.tolerations[0]", ""),
    ("a node selector", pod("p", spec={"nodeSelector": {"a b": "c"}}), "spec.nodeSelector", "FieldValueInvalid"),
    ("a hostname", pod("p", spec={"hostname": "A.b"}), "spec.hostname", "FieldValueInvalid"),
]


@pytest.mark.point(51)
@pytest.mark.parametrize(("obj", "field", "reason"), [c[1:] for c in BAD_PODS], ids=[c[0] for c in BAD_PODS])
def test_a_bad_pod_is_invalid_where_it_is_bad(space: Space, obj: Object, field: str, reason: str) -> None:
    refused = space.api.post(space.path("pods"), obj)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused
    result = [c for c in refused.causes if c["field"].startswith(field)]
    assert result, refused.causes
    assert reason in ("", result[0]["reason"])


@pytest.mark.point(51)
def test_a_missing_service_account_or_priority_class_is_forbidden(space: Space) -> None:
    refused = space.api.post(space.path("pods"), pod("p", spec={"serviceAccountName": "nobody"}))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f'pods "p" is forbidden: error looking up service account {space.name}/nobody: '
        'serviceaccount "nobody" not found'
    )
    refused = space.api.post(space.path("pods"), pod("p", spec={"priorityClassName": "none"}))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == 'pods "p" is forbidden: no PriorityClass with name none was found'


@pytest.mark.point(51)
def test_a_priority_class_gives_the_priority(api: Client, space: Space) -> None:
    created = api.post(path("priorityclasses"), {"metadata": {"generateName": "high-"}, "value": 1000})
    assert created.status == 201, created
    name = created.json["metadata"]["name"]
    spec = space.make("pods", pod("p", spec={"priorityClassName": name}))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "PreemptLowerPriority")
    system = space.make("pods", pod("q", spec={"priorityClassName": "system-node-critical"}))["spec"]
    assert system["priority"] == 2000001000


@pytest.mark.point(52)
def test_most_of_a_pods_spec_is_immutable(space: Space) -> None:
    space.make("pods", pod("p", spec={"schedulingGates": [{"name": "t.io/a"}, {"name": "t.io/b"}]}))
    at = space.path("pods", "p")
    for patch in (
        {"spec": {"hostNetwork": True}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"containers": [{"name": "main", "command": ["x"]}]}},
        {"spec": {"containers": [{"name": "other", "image": "x"}]}},
        {"spec": {"terminationGracePeriodSeconds": 5}},
        {"spec": {"schedulingGates": [{"name": "t.io/c"}]}},
    ):
        refused = space.api.patch(at, patch, STRATEGIC)
        assert (refused.status, refused.reason) == (422, "Invalid"), (patch, refused)
    refused = space.api.patch(at, {"spec": {"hostNetwork": True}}, STRATEGIC)
    assert refused.causes[0]["field"] == "spec"
    assert refused.causes[0]["reason"] == "FieldValueForbidden"
    assert refused.causes[0]["message"].startswith(
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )


@pytest.mark.point(52)
def test_these_fields_of_a_pod_may_change(space: Space) -> None:
    space.make("pods", pod("p", spec={"schedulingGates": [{"name": "t.io/a"}, {"name": "t.io/b"}]}))
    at = space.path("pods", "p")
    toleration = {"key": "x", "operator": "Exists"}
    live = space.get("pods", "p")
    for patch in (
        {"spec": {"containers": [{"name": "main", "image": "other:1"}]}},
        {"spec": {"activeDeadlineSeconds": 100}},
        {"spec": {"tolerations": [*live["spec"]["tolerations"], toleration]}},
        {"spec": {"schedulingGates": [{"name": "t.io/a", "$patch": "delete"}]}},
    ):
        answer = space.api.patch(at, patch, STRATEGIC)
        assert answer.status == 200, (patch, answer)
    spec = space.get("pods", "p")["spec"]
    assert spec["containers"][0]["image"] == "other:1"
    assert spec["activeDeadlineSeconds"] == 100
    assert toleration in spec["tolerations"]
    assert spec["schedulingGates"] == [{"name": "t.io/b"}]
    longer = space.api.patch(at, {"spec": {"activeDeadlineSeconds": 200}}, STRATEGIC)
    assert (longer.status, longer.causes[0]["field"]) == (422, "spec.activeDeadlineSeconds")


@pytest.mark.point(53)
def test_a_job_gets_its_defaults_and_selector(space: Space) -> None:
    created = space.make("jobs", job("j"))
    spec, uid = created["spec"], created["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"], spec["manualSelector"]) == ("NonIndexed", False, False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }


BAD_JOBS: list[tuple[str, Object, str]] = [
    ("restart", {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}, "spec.template.spec.restartP"),
    ("parallelism", {"parallelism": -1}, "spec.parallelism"),
    ("backoff", {"backoffLimit": -1}, "spec.backoffLimit"),
    ("mode", {"completionMode": "Weird"}, "spec.completionMode"),
    ("indexed without completions", {"completionMode": "Indexed", "parallelism": 2}, "spec.completions"),
    ("ttl", {"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    ("selector", {"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
]


@pytest.mark.point(53)
@pytest.mark.parametrize(("spec", "field"), [c[1:] for c in BAD_JOBS], ids=[c[0] for c in BAD_JOBS])
def test_a_bad_job_is_invalid_where_it_is_bad(space: Space, spec: Object, field: str) -> None:
    refused = space.api.post(space.path("jobs"), job("j", spec=spec))
    assert (refused.status, refused.reason) == (422, "Invalid"), refused
    assert any(c["field"].startswith(field) for c in refused.causes), refused.causes


@pytest.mark.point(53)
def test_a_jobs_template_is_immutable_but_for_scheduling_while_suspended(space: Space) -> None:
    space.make("jobs", job("run"))
    space.make("jobs", job("held", spec={"suspend": True}))
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    where = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}
    for name in ("run", "held"):
        refused = space.api.patch(space.path("jobs", name), image, STRATEGIC)
        assert (refused.status, refused.causes[0]["field"]) == (422, "spec.template"), refused
        assert "field is immutable" in refused.message
    assert space.api.patch(space.path("jobs", "run"), where).status == 422
    moved = space.api.patch(space.path("jobs", "held"), where)
    assert (moved.status, moved.json["spec"]["template"]["spec"]["nodeSelector"]) == (200, {"zone": "a"})
    for name, patch in (("run", {"parallelism": 3}), ("held", {"suspend": False}), ("run", {"suspend": True})):
        assert space.api.patch(space.path("jobs", name), {"spec": patch}).status == 200
    fixed = space.api.patch(space.path("jobs", "run"), {"spec": {"completions": 5}})
    assert (fixed.status, fixed.causes[0]["field"]) == (422, "spec.completions")


@pytest.mark.point(53)
def test_deployments_get_their_defaults(space: Space) -> None:
    spec = space.make("deployments", deployment("d"))["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    mismatch = deployment("e", spec={"selector": {"matchLabels": {"app": "other"}}})
    refused = space.api.post(space.path("deployments"), mismatch)
    assert (refused.status, refused.causes[0]["field"]) == (422, "spec.template.metadata.labels")


@pytest.mark.point(54)
def test_services_get_distinct_cluster_ips(space: Space) -> None:
    first, second = (space.make("services", service(name))["spec"] for name in ("a", "b"))
    assert first["clusterIP"] != second["clusterIP"]
    assert first["clusterIPs"] == [first["clusterIP"]]
    assert (first["type"], first["sessionAffinity"], first["internalTrafficPolicy"]) == ("ClusterIP", "None", "Cluster")
    assert (first["ipFamilies"], first["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert first["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    headless = space.make("services", service("none", spec={"clusterIP": "None"}))["spec"]
    assert (headless["clusterIP"], headless["clusterIPs"]) == ("None", ["None"])
    taken = space.api.post(space.path("services"), service("c", spec={"clusterIP": first["clusterIP"]}))
    assert (taken.status, taken.reason) == (422, "Invalid")
    assert "provided IP is already allocated" in taken.message
    outside = space.api.post(space.path("services"), service("c", spec={"clusterIP": "192.0.2.1"}))
    assert (outside.status, outside.causes[0]["field"]) == (422, "spec.clusterIPs")
    moved = space.api.patch(space.path("services", "a"), {"spec": {"clusterIP": second["clusterIP"]}})
    assert (moved.status, moved.causes[0]["field"]) == (422, "spec.clusterIPs[0]")
    space.api.delete(space.path("services", "a"))
    again = space.make("services", service("d", spec={"clusterIP": first["clusterIP"]}))
    assert again["spec"]["clusterIP"] == first["clusterIP"]


@pytest.mark.point(54)
def test_node_ports_and_external_names(space: Space) -> None:
    outside = space.make("services", service("np", spec={"type": "NodePort"}))["spec"]
    assert 30000 <= outside["ports"][0]["nodePort"] <= 32767
    assert outside["externalTrafficPolicy"] == "Cluster"
    named = service("ext", spec={"type": "ExternalName", "externalName": "example.com", "ports": []})
    created = space.make("services", named)["spec"]
    assert "clusterIP" not in created
    refused = space.api.post(space.path("services"), service("x", spec={"ports": [{"port": 80}, {"port": 81}]}))
    assert (refused.status, refused.causes[0]["field"]) == (422, "spec.ports[0].name")
    refused = space.api.post(space.path("services"), service("x", spec={"type": "Strange"}))
    assert (refused.status, refused.causes[0]["field"]) == (422, "spec.type")


@pytest.mark.point(55)
def test_a_claim_is_protected_and_immutable_after_binding(space: Space) -> None:
    created = space.make("persistentvolumeclaims", claim("c"))
    assert created["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert created["spec"]["volumeMode"] == "Filesystem"
    assert created["status"] == {"phase": "Pending"}
    at = space.path("persistentvolumeclaims", "c")
    refused = space.api.patch(at, {"spec": {"accessModes": ["ReadWriteMany"]}})
    assert (refused.status, refused.causes[0]["field"], refused.causes[0]["reason"]) == (
        422,
        "spec",
        "FieldValueForbidden",
    )
    assert (
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        in (refused.message)
    )
    bound = space.api.patch(at, {"spec": {"volumeName": "pv-1"}})
    assert bound.status == 200, bound
    space.api.patch(f"{at}/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    moved = space.api.patch(at, {"spec": {"volumeName": "pv-2"}})
    assert moved.status == 422
    smaller = space.api.patch(at, {"spec": {"resources": {"requests": {"storage": "500Mi"}}}})
    assert smaller.status in (403, 422), smaller
    deleted = space.api.delete(at)
    assert "deletionTimestamp" in deleted.json["metadata"]


@pytest.mark.point(55)
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"accessModes": []}, "spec.accessModes"),
        ({"accessModes": ["WriteNever"]}, "spec.accessModes"),
        ({"resources": {}}, "spec.resources[storage]"),
        ({"resources": {"requests": {"storage": "0"}}}, "spec.resources[storage]"),
        ({"volumeMode": "Tape"}, "spec.volumeMode"),
        ({"storageClassName": "Not A Name"}, "spec.storageClassName"),
    ],
)
def test_a_bad_claim_is_invalid_where_it_is_bad(space: Space, spec: Object, field: str) -> None:
    refused = space.api.post(space.path("persistentvolumeclaims"), claim("c", spec=spec))
    assert (refused.status, refused.reason) == (422, "Invalid"), refused
    assert field in {c["field"].split("[0]")[0] for c in refused.causes}, refused.causes


def cpu(value: Any) -> Object:
    return pod("p", container={"resources": {"requests": {"cpu": value}}})


@pytest.mark.point(56)
def test_quantities_are_read_and_written_in_their_canonical_form(space: Space) -> None:
    for submitted, canonical in (
        ("1000m", "1"),
        ("0.5", "500m"),
        (2, "2"),
        ("1e3", "1e3"),
        ("1500m", "1500m"),
        ("0.0001", "1m"),
        ("100Mi", "100Mi"),
        ("1024Ki", "1Mi"),
    ):
        created = space.api.post(space.path("pods"), cpu(submitted), query={"dryRun": "All"})
        assert created.status == 201, (submitted, created)
        assert created.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == canonical, submitted
    for bad in ("lots", "1 Gi", "1gb", "", "0x10", "1e"):
        refused = space.api.post(space.path("pods"), cpu(bad))
        assert (refused.status, refused.reason) == (400, "BadRequest"), (bad, refused)
        assert refused.message.startswith('Pod in version "v1" cannot be handled as a Pod: ')
    negative = space.api.post(space.path("pods"), cpu("-1"))
    assert (negative.status, "must be greater than or equal to 0" in negative.message) == (422, True)


@pytest.mark.point(56)
def test_int_or_string_takes_both_and_nothing_else(space: Space) -> None:
    for target in (8080, "http"):
        created = space.api.post(
            space.path("services"),
            service("s", spec={"ports": [{"port": 80, "targetPort": target}]}),
            query={"dryRun": "All"},
        )
        assert created.json["spec"]["ports"][0]["targetPort"] == target
    refused = space.api.post(space.path("services"), service("s", spec={"ports": [{"port": 80, "targetPort": True}]}))
    assert (refused.status, refused.reason) == (400, "BadRequest")


@pytest.mark.point(56)
def test_invalid_times_and_wrong_types_are_rejected_with_their_field(space: Space) -> None:
    for obj in (
        pod("p", spec={"containers": "none"}),
        pod("p", spec={"terminationGracePeriodSeconds": "30"}),
        pod("p", container={"command": "sh"}),
        pod("p", spec={"hostNetwork": "yes"}),
        pod("p", creationTimestamp="now"),
        pod("p", labels={"a": 1}),
        {"apiVersion": "v1", "kind": "Pod", "metadata": "p"},
    ):
        refused = space.api.post(space.path("pods"), obj)
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused
        assert refused.message.startswith('Pod in version "v1" cannot be handled as a Pod: ')


@pytest.mark.point(56)
def test_a_quota_counts_usage_and_rejects_what_exceeds_it(space: Space) -> None:
    hard = {"pods": "1", "requests.cpu": "1", "count/configmaps": "20"}
    space.make("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    # The quota controller has to see the quota first.
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    answer = space.api.patch(space.path("resourcequotas", "q", "status"), {"status": status})
    assert answer.status == 200, answer

    def missing_request() -> bool:
        refused = space.api.post(space.path("pods"), pod("none"), query={"dryRun": "All"})
        return refused.status == 403 and refused.message == (
            'pods "none" is forbidden: failed quota: q: must specify requests.cpu for: main'
        )

    eventually(missing_request, "the quota enforced")
    space.make("pods", cpu("400m"))
    over = cpu("800m")
    over["metadata"]["name"] = "over"
    refused = space.api.post(space.path("pods"), over)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'pods "over" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=800m, '
        "used: pods=1,requests.cpu=400m, limited: pods=1,requests.cpu=1"
    )
    used = space.get("resourcequotas", "q")["status"]["used"]
    assert (used["pods"], used["requests.cpu"]) == ("1", "400m")


@pytest.mark.point(56)
def test_a_limit_range_defaults_and_limits(space: Space) -> None:
    limit = {
        "type": "Container",
        "default": {"cpu": "500m"},
        "defaultRequest": {"cpu": "100m"},
        "max": {"cpu": "1"},
        "min": {"cpu": "50m"},
    }
    space.make("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})

    def defaulted() -> bool:
        created = space.api.post(space.path("pods"), pod("p"), query={"dryRun": "All"}).json
        resources: Object = created["spec"]["containers"][0]["resources"]
        return resources == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}

    eventually(defaulted, "the defaults of the range")
    big = pod("big", container={"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}})
    refused = space.api.post(space.path("pods"), big)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == 'pods "big" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    small = pod("small", container={"resources": {"requests": {"cpu": "10m"}}})
    refused = space.api.post(space.path("pods"), small)
    assert refused.message == 'pods "small" is forbidden: minimum cpu usage per Container is 50m, but request is 10m'
