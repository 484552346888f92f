"""Cases of pod updates, through the main endpoint and through subresources."""

from __future__ import annotations

from tests.api.differential.changes import set_
from tests.api.differential.pods import pod
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

TERMINATED = {
    "name": "main",
    "image": "i",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "state": {"terminated": {"exitCode": 0}},
}

UPDATES: list[Case] = [
    Case("an image", pod(), set_("spec.containers.0.image", "img:2")),
    Case("an image with blanks", pod(), set_("spec.containers.0.image", " x")),
    Case("no image", pod(), set_("spec.containers.0.image", "")),
    Case("labels", pod(), set_("metadata.labels", {"a": "b"})),
    Case("a command", pod(), set_("spec.containers.0.command", ["x"])),
    Case("one more container", pod(), lambda o: o["spec"]["containers"].append({"name": "b", "image": "i"})),
    Case("a deadline", pod(), set_("spec.activeDeadlineSeconds", 5)),
    Case("a longer deadline", pod({"activeDeadlineSeconds": 5}), set_("spec.activeDeadlineSeconds", 6)),
    Case("no deadline any more", pod({"activeDeadlineSeconds": 5}), set_("spec.activeDeadlineSeconds", None)),
    Case("one more toleration", pod(), lambda o: o["spec"]["tolerations"].append({"key": "a", "operator": "Exists"})),
    Case("fewer tolerations", pod(), set_("spec.tolerations", [])),
    Case("other toleration seconds", pod(), set_("spec.tolerations.0.tolerationSeconds", 5)),
    Case("grace to one", pod({"terminationGracePeriodSeconds": -1}), set_("spec.terminationGracePeriodSeconds", 1)),
    Case("grace to two", pod({"terminationGracePeriodSeconds": -1}), set_("spec.terminationGracePeriodSeconds", 2)),
    Case(
        "fewer gates",
        pod({"schedulingGates": [{"name": "a"}, {"name": "b"}]}),
        set_("spec.schedulingGates", [{"name": "a"}]),
    ),
    Case(
        "more gates",
        pod({"schedulingGates": [{"name": "a"}]}),
        set_("spec.schedulingGates", [{"name": "a"}, {"name": "b"}]),
    ),
    Case("gates where there were none", pod(), set_("spec.schedulingGates", [{"name": "b"}])),
    Case(
        "a node selector of a gated pod",
        pod({"schedulingGates": [{"name": "a"}]}),
        set_("spec.nodeSelector", {"a": "b"}),
    ),
    Case(
        "another node selector of a gated pod",
        pod({"schedulingGates": [{"name": "a"}], "nodeSelector": {"a": "b"}}),
        set_("spec.nodeSelector", {"a": "c"}),
    ),
    Case(
        "node affinity of a gated pod",
        pod({"schedulingGates": [{"name": "a"}]}),
        set_(
            "spec.affinity",
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                    }
                }
            },
        ),
    ),
    Case("a node selector of a free pod", pod(), set_("spec.nodeSelector", {"a": "b"})),
    Case("a mirror annotation", pod(), set_("metadata.annotations", {"kubernetes.io/config.mirror": "x"})),
    Case(
        "an AppArmor annotation",
        pod(),
        set_("metadata.annotations", {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}),
    ),
    Case(
        "ephemeral containers by the main endpoint",
        pod(),
        set_("spec.ephemeralContainers", [{"name": "d", "image": "i"}]),
    ),
    Case("the node", pod(), set_("spec.nodeName", "n")),
    Case("the status by the main endpoint", pod(), set_("status.phase", "Running")),
    Case("a phase", pod(), set_("status.phase", "Running"), part="status"),
    Case("another class of service", pod(), set_("status.qosClass", "Guaranteed"), part="status"),
    Case("bad conditions", pod(), set_("status.conditions", [{"type": "a b", "status": "True"}]), part="status"),
    Case("bad addresses", pod(), set_("status.podIPs", [{"ip": "x"}]), part="status"),
    Case(
        "two addresses of one family",
        pod(),
        set_("status.podIPs", [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}]),
        part="status",
    ),
    Case("a host address that is not the first", pod(), set_("status.hostIPs", [{"ip": "1.1.1.1"}]), part="status"),
    Case("a bad nominated node", pod(), set_("status.nominatedNodeName", "A"), part="status"),
    Case("the spec by the status endpoint", pod(), set_("spec.containers.0.image", "x"), part="status"),
    Case("labels by the status endpoint", pod(), set_("metadata.labels", {"a": "b"}), part="status"),
]

DEBUGGER: Object = {"name": "d", "image": "i", "targetContainerName": "main"}
SIZED: Object = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}}

PARTS: list[Case] = [
    Case("a debugger", pod(), set_("spec.ephemeralContainers", [DEBUGGER]), part="ephemeralcontainers"),
    Case(
        "a debugger that does too much",
        pod({"volumes": [{"name": "v"}]}),
        set_(
            "spec.ephemeralContainers",
            [
                {
                    "name": "main",
                    "image": " i",
                    "targetContainerName": "nope",
                    "ports": [{"containerPort": 1}],
                    "resources": {"limits": {"cpu": "1"}},
                    "livenessProbe": {"exec": {"command": ["x"]}},
                    "lifecycle": {},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}],
                }
            ],
        ),
        part="ephemeralcontainers",
    ),
    Case("more cpu", pod(container=SIZED), set_("spec.containers.0.resources.requests.cpu", "1500m"), part="resize"),
    Case("less memory", pod(container=SIZED), set_("spec.containers.0.resources.limits.memory", "1Gi"), part="resize"),
    Case("no requests", pod(container=SIZED), set_("spec.containers.0.resources.requests", None), part="resize"),
    Case("another image by resize", pod(container=SIZED), set_("spec.containers.0.image", "x"), part="resize"),
    Case(
        "another class of service by resize",
        pod(),
        set_("spec.containers.0.resources", SIZED["resources"]),
        part="resize",
    ),
    Case(
        "other resources",
        pod(container=SIZED),
        set_("spec.containers.0.resources.limits.ephemeral-storage", "1Gi"),
        part="resize",
    ),
    Case(
        "the resources of the whole pod",
        pod({"resources": {"limits": {"cpu": "4", "memory": "4Gi"}}}, container=SIZED),
        set_("spec.containers.0.resources.requests.cpu", "1500m"),
        part="resize",
    ),
]
