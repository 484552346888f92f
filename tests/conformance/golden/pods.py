"""Pods and their templates, as people write them, and now and then wrong in one place."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.conformance.golden.draw import labels, quantities
from tests.support.draw import Drawn, mostly, optional

NAMES = st.sampled_from(["main", "side", "a1"])
PATHS = st.sampled_from(["/data", "/var/log", "relative", "/data"])


def ports() -> Drawn:
    port = mostly(st.sampled_from([80, 8080, 65535]), [0, -1, 70000])
    target = optional(
        {"containerPort": port},
        name=mostly(st.sampled_from(["http", "metrics"]), ["Bad_Name", "too-long-for-a-port", ""]),
        protocol=mostly(st.sampled_from(["TCP", "UDP"]), ["tcp", "HTTP"]),
        hostPort=mostly(st.just(0), [8080, -1]),
    )
    return st.lists(target, max_size=2)


def environment() -> Drawn:
    source = st.one_of(
        st.fixed_dictionaries(
            {"fieldRef": st.fixed_dictionaries({"fieldPath": mostly(st.just("metadata.name"), ["spec.nope", ""])})}
        ),
        st.fixed_dictionaries(
            {"secretKeyRef": st.fixed_dictionaries({"name": st.just("s"), "key": mostly(st.just("k"), ["", "a b"])})}
        ),
        st.fixed_dictionaries(
            {"resourceFieldRef": st.fixed_dictionaries({"resource": mostly(st.just("limits.cpu"), ["limits.x"])})}
        ),
    )
    name = mostly(st.sampled_from(["A", "B_2", "c.d"]), ["", "1A", "a=b"])
    plain = optional({"name": name}, value=st.sampled_from(["1", "", "$(A)"]))
    return st.lists(st.one_of(plain, st.fixed_dictionaries({"name": name, "valueFrom": source})), max_size=2)


def probes() -> Drawn:
    action = st.one_of(
        st.just({"exec": {"command": ["true"]}}),
        st.fixed_dictionaries({"httpGet": optional({"port": mostly(st.sampled_from([80, "http"]), [0, "a b"])})}),
        st.just({"tcpSocket": {"port": 80}}),
        st.just({}),
    )
    times = optional(
        periodSeconds=mostly(st.just(5), [-1]), failureThreshold=mostly(st.just(2), [-1]), timeoutSeconds=st.just(3)
    )
    return st.builds(lambda target, more: target | more, action, times)


def resources() -> Drawn:
    amounts = optional(
        {}, cpu=quantities(), memory=quantities(), **{"nvidia.com/gpu": mostly(st.sampled_from(["1", 2]), ["500m"])}
    )
    return optional(limits=amounts, requests=amounts)


def containers(minimum: int = 1) -> Drawn:
    target = optional(
        {
            "name": mostly(NAMES, ["", "Upper", "dots.in"]),
            "image": mostly(st.sampled_from(["busybox", "busybox:1.36", "host:5000/a/b"]), ["", " busybox"]),
        },
        command=st.just(["sleep", "1"]),
        args=st.just(["x"]),
        imagePullPolicy=mostly(st.sampled_from(["Always", "Never"]), ["Sometimes"]),
        ports=ports(),
        env=environment(),
        resources=resources(),
        livenessProbe=probes(),
        readinessProbe=probes(),
        volumeMounts=st.lists(
            optional(
                {"name": mostly(st.just("v"), ["missing"]), "mountPath": PATHS},
                readOnly=st.booleans(),
                subPath=mostly(st.just("x"), ["/abs", "../up"]),
            ),
            max_size=1,
        ),
        securityContext=optional(
            runAsUser=mostly(st.just(1000), [-1]), privileged=st.booleans(), runAsNonRoot=st.booleans()
        ),
        workingDir=st.just("/w"),
        tty=st.booleans(),
        terminationMessagePolicy=mostly(st.just("File"), ["Nope"]),
    )
    return st.lists(target, min_size=minimum, max_size=2, unique_by=lambda c: str(c["name"]))


def volumes() -> Drawn:
    sources: list[dict[str, Any]] = [
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"hostPath": {"path": "/x"}},
        {"hostPath": {"path": "/x", "type": "Weird"}},
        {"configMap": {"name": "c"}},
        {"configMap": {"name": "c", "defaultMode": 420, "items": [{"key": "a", "path": "../b"}]}},
        {"secret": {"secretName": "s"}},
        {"secret": {}},
        {"persistentVolumeClaim": {"claimName": "p"}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"nfs": {"server": "h", "path": "/p"}},
        {},
    ]
    return st.sampled_from(sources).map(lambda target: [{"name": "v", **target}])


def tolerations() -> Drawn:
    target = optional(
        key=mostly(st.sampled_from(["gpu", "a/b"]), ["a b", ""]),
        operator=mostly(st.sampled_from(["Exists", "Equal"]), ["In"]),
        value=st.sampled_from(["yes", ""]),
        effect=mostly(st.sampled_from(["NoSchedule", "NoExecute"]), ["Never"]),
        tolerationSeconds=st.just(5),
    )
    return st.lists(target, max_size=1)


def affinity() -> Drawn:
    expression = optional(
        {"key": mostly(st.just("zone"), ["a b"]), "operator": mostly(st.sampled_from(["In", "Exists"]), ["Has"])},
        values=st.sampled_from([["a"], []]),
    )
    term = st.fixed_dictionaries({"matchExpressions": st.lists(expression, min_size=1, max_size=1)})
    node = st.fixed_dictionaries(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                {"nodeSelectorTerms": st.lists(term, max_size=1)}
            )
        }
    )
    return st.fixed_dictionaries({"nodeAffinity": node})


def pod_spec(*, template_of: str = "") -> Drawn:
    """A PodSpec; a template of a Job must not restart always, one of a Deployment must."""
    policies: dict[str, Any] = {
        "": mostly(st.sampled_from(["Always", "Never", "OnFailure"]), ["Maybe"]),
        "job": mostly(st.sampled_from(["Never", "OnFailure"]), ["Always"]),
        "deployment": mostly(st.just("Always"), ["Never"]),
    }
    required = {"containers": containers()}
    fields: dict[str, Drawn] = {
        "initContainers": containers(0),
        "volumes": volumes(),
        "tolerations": tolerations(),
        "nodeSelector": labels(),
        "affinity": affinity(),
        "terminationGracePeriodSeconds": mostly(st.sampled_from([0, 5]), [-1, "5"]),
        "activeDeadlineSeconds": mostly(st.just(10), [0]),
        "hostNetwork": mostly(st.booleans(), ["yes"]),
        "dnsPolicy": mostly(st.just("Default"), ["None", "Odd"]),
        "serviceAccountName": st.just("default"),
        "hostname": mostly(st.just("host"), ["Host_1"]),
        "subdomain": mostly(st.just("sub"), ["s.b"]),
        "schedulerName": st.just("mine"),
        "priorityClassName": st.just("system-node-critical"),
        "securityContext": optional(fsGroup=mostly(st.just(5), [-5]), runAsUser=st.just(7)),
        "imagePullSecrets": st.just([{"name": "r"}]),
        "shareProcessNamespace": st.booleans(),
        "automountServiceAccountToken": st.booleans(),
        "enableServiceLinks": st.booleans(),
        "unknownField": st.just(1),
    }
    if template_of:
        required["restartPolicy"] = policies[template_of]
    else:
        fields["restartPolicy"] = policies[""]
    return optional(required, **fields)
