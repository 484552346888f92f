"""Valid and invalid pods."""

from __future__ import annotations

from tests.api.differential.pod_changes import PARTS, UPDATES
from tests.api.differential.pods import CONTAINER, env, from_, pod, with_volume
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

GOOD: dict[str, Object] = {
    "minimal": pod(),
    "latest is pulled always": pod(container={"image": "img:latest"}),
    "no tag is latest": pod(container={"image": "registry.example:5000/team/img"}),
    "a digest is not latest": pod(container={"image": "img@sha256:" + "a" * 64}),
    "an image that is no reference": pod(container={"image": "Not A Reference"}),
    "everything about a container": pod(
        {"hostNetwork": True, "serviceAccountName": "sa"},
        container={
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "protocol": "UDP"}],
            "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1}},
            "securityContext": {"runAsUser": 1, "capabilities": {"add": ["NET_ADMIN"]}},
            "livenessProbe": {"httpGet": {"port": 80}},
            "readinessProbe": {"grpc": {"port": 1}},
            "startupProbe": {"tcpSocket": {"port": "http"}, "failureThreshold": 30},
            "lifecycle": {"preStop": {"sleep": {"seconds": 0}}, "postStart": {"httpGet": {"port": "http"}}},
            "env": [
                {"name": "a.b-c 1", "value": "x"},
                from_("CPU", resourceFieldRef={"resource": "limits.cpu"}),
                from_("NAME", fieldRef={"fieldPath": "metadata.name"}),
                from_("LABEL", fieldRef={"fieldPath": "metadata.labels['app']"}),
                from_("KEY", configMapKeyRef={"name": "c", "key": "k", "optional": True}),
                from_("SECRET", secretKeyRef={"name": "s", "key": "k"}),
            ],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
            "stdin": True,
            "tty": True,
            "workingDir": "/w",
            "command": ["sh"],
            "args": ["-c", "true"],
        },
    ),
    "every common volume": pod(
        {
            "serviceAccountName": "sa",
            "volumes": [
                {"name": "plain"},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
                {"name": "config", "configMap": {"name": "c", "items": [{"key": "a", "path": "b/c", "mode": 256}]}},
                {"name": "secret", "secret": {"secretName": "s", "optional": True}},
                {"name": "host", "hostPath": {"path": "/data", "type": "DirectoryOrCreate"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                {"name": "nfs", "nfs": {"server": "n", "path": "/x"}},
                {
                    "name": "down",
                    "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
                },
                {
                    "name": "projected",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"path": "token"}},
                            {"configMap": {"name": "c"}},
                            {
                                "downwardAPI": {
                                    "items": [
                                        {
                                            "path": "cpu",
                                            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                                        }
                                    ]
                                }
                            },
                        ]
                    },
                },
                {
                    "name": "scratch",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "metadata": {"labels": {"a": "b"}},
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "1000Mi"}},
                            },
                        }
                    },
                },
                {"name": "csi", "csi": {"driver": "d.example.com"}},
                {"name": "iscsi", "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            ],
        },
        container={"volumeMounts": [{"name": "plain", "mountPath": "/p", "subPath": "a/b"}]},
    ),
    "init containers and a sidecar": pod(
        {
            "initContainers": [
                {"name": "first", "image": "i"},
                {
                    "name": "side",
                    "image": "i",
                    "restartPolicy": "Always",
                    "readinessProbe": {"exec": {"command": ["true"]}},
                },
            ]
        }
    ),
    "placement": pod(
        {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "x", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["4"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                        ]
                    }
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                    ]
                },
            },
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
            ],
            "schedulingGates": [{"name": "example.com/wait"}],
            "readinessGates": [{"conditionType": "example.com/ready"}],
        }
    ),
    "label keys are merged into selectors": pod(
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "zone",
                            "labelSelector": {"matchLabels": {"x": "y"}},
                            "matchLabelKeys": ["a", "absent"],
                            "mismatchLabelKeys": ["b"],
                        }
                    ]
                }
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {},
                    "matchLabelKeys": ["a"],
                }
            ],
        },
        labels={"a": "1", "b": "2"},
    ),
    "resources of the whole pod": pod(
        {"resources": {"limits": {"cpu": "2", "memory": "2Gi"}}},
        container={"resources": {"limits": {"cpu": "1"}}},
    ),
    "resources of the whole pod beside devices and huge pages": pod(
        {"resources": {"requests": {"cpu": "2"}}},
        container={
            "resources": {
                "limits": {"cpu": "1", "nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}
            }
        },
    ),
    "no resources of the whole pod": pod({"resources": {}}, container={"resources": {"requests": {"cpu": "1"}}}),
    "a guaranteed pod": pod(container={"resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}),
    "a pod that asks for nothing": pod(
        container={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0", "memory": "0"}}}
    ),
    "an image as a volume is dropped, and its mounts with it": pod(
        {"volumes": [{"name": "i", "image": {"reference": "x"}}, {"name": "e"}]},
        container={"volumeMounts": [{"name": "i", "mountPath": "/i"}, {"name": "e", "mountPath": "/e"}]},
    ),
    "the old service account field": pod({"serviceAccount": "old"}),
    "dns of its own": pod(
        {
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["1.2.3.4"], "searches": ["a_b.c", "."], "options": [{"name": "x"}]},
        }
    ),
    "names of the host": pod(
        {
            "hostname": "h",
            "subdomain": "s",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a.b"]}],
            "setHostnameAsFQDN": True,
        }
    ),
    "a security context": pod(
        {
            "securityContext": {
                "runAsUser": 1,
                "fsGroup": 2,
                "fsGroupChangePolicy": "OnRootMismatch",
                "supplementalGroups": [3],
                "sysctls": [{"name": "net.core.somaxconn", "value": "1"}],
                "seccompProfile": {"type": "RuntimeDefault"},
            }
        }
    ),
    "a runtime image volume is dropped": pod({"volumes": [{"name": "v", "image": {"reference": "x"}}]}),
    "odd amounts": pod(
        container={"resources": {"requests": {"cpu": "0.0001", "memory": "1e3", "ephemeral-storage": "1.5Gi"}}}
    ),
    "a deletion cost": pod(annotations={"controller.kubernetes.io/pod-deletion-cost": "-5"}),
    "a toleration for a while": pod(
        {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]}
    ),
    "duplicate variables only warn": env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
    "a negative grace period only warns": pod({"terminationGracePeriodSeconds": -5}),
    "duplicate ports only warn": pod(container={"ports": [{"containerPort": 80}, {"containerPort": 80, "name": "b"}]}),
    "fractional bytes only warn": pod(container={"resources": {"requests": {"memory": "1500m"}}}),
    "a pull secret without a name only warns": pod({"imagePullSecrets": [{}]}),
    "old node labels only warn": pod({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
    "git volumes only warn": with_volume({"gitRepo": {"repository": "r"}}),
    "files inside one another only warn": pod(
        {
            "volumes": [
                {
                    "name": "p",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "x", "items": [{"key": "a", "path": "a"}]}},
                            {"secret": {"name": "y", "items": [{"key": "a", "path": "a/b"}]}},
                        ]
                    },
                }
            ]
        }
    ),
    "repetitions only warn": pod(
        {
            "hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}, {"ip": "01.1.1.1"}],
            "imagePullSecrets": [{"name": "a"}, {"name": "a"}],
            "dnsConfig": {"nameservers": ["01.1.1.1"]},
        }
    ),
    "old annotations only warn": pod(
        annotations={
            "scheduler.alpha.kubernetes.io/critical-pod": "",
            "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/main": "unconfined",
            "container.seccomp.security.alpha.kubernetes.io/main": "localhost/x",
        }
    ),
    "old affinity only warns": pod(
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]
                            },
                        }
                    ]
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}],
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "a"}}
                    ],
                },
            }
        }
    ),
    "ports of the host only warn": pod(
        {
            "containers": [
                {**CONTAINER, "ports": [{"containerPort": 1}, {"containerPort": 1, "hostPort": 2}]},
                {"name": "b", "image": "b", "ports": [{"containerPort": 1}]},
            ]
        }
    ),
    "a variable of itself does not warn": env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}),
    "numbers as amounts": pod(container={"resources": {"limits": {"cpu": 2, "memory": 1000000}}}),
    "AppArmor by field": pod(
        {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
        container={"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}},
    ),
    "AppArmor by annotation": pod(
        annotations={"container.apparmor.security.beta.kubernetes.io/main": "localhost/x"},
    ),
    "a preemption policy": pod({"preemptionPolicy": "PreemptLowerPriority", "priority": 0}),
    "an old volume": with_volume(
        {
            "storageos": {"volumeName": "x"},
        }
    ),
    "a quobyte volume": with_volume({"quobyte": {"registry": "a:1", "volume": "b"}}),
    "an fc volume": with_volume({"fc": {"wwids": ["a"]}}),
    "an azure disk": with_volume({"azureDisk": {"diskName": "a", "diskURI": "https://x"}}),
    "a scaleIO volume": with_volume(
        {"scaleIO": {"gateway": "a", "system": "b", "volumeName": "c", "secretRef": {"name": "x"}}}
    ),
}

BAD: dict[str, Object] = {
    "no containers": pod({"containers": []}),
    "a container without anything": pod({"containers": [{}]}),
    "container names": pod({"containers": [{**CONTAINER, "name": "A_b"}, CONTAINER, CONTAINER]}),
    "blanks around an image": pod(container={"image": " img "}),
    "ports": pod(
        container={
            "ports": [
                {"containerPort": 0},
                {"containerPort": 70000, "name": "A"},
                {"containerPort": 1, "name": "abcdefghijklmnop", "protocol": "X", "hostPort": -1},
                {"containerPort": 2, "name": "80"},
                {"containerPort": 3, "name": "a--b"},
                {"containerPort": 4, "name": "-a"},
                {"containerPort": 5, "name": "dup"},
                {"containerPort": 6, "name": "dup"},
            ]
        }
    ),
    "host ports twice": pod(
        container={"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}
    ),
    "host network and another host port": pod(
        {"hostNetwork": True}, container={"ports": [{"containerPort": 1, "hostPort": 5}]}
    ),
    "variables": env(
        {"name": ""},
        {"name": "a=b"},
        {"name": "é"},
        from_(),
        {"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        from_(fieldRef={"fieldPath": "spec.foo"}),
        from_(fieldRef={"fieldPath": "metadata.labels['a b']"}),
        from_(fieldRef={"fieldPath": "metadata.annotations['A B']"}),
        from_(fieldRef={"fieldPath": "metadata.name['a']"}),
        from_(fieldRef={"apiVersion": "v2", "fieldPath": "metadata.name"}),
        from_(fieldRef={"fieldPath": "metadata.labels"}),
        from_(fieldRef={"fieldPath": "spec.restartPolicy"}),
        from_(fieldRef={"fieldPath": ""}),
        from_(resourceFieldRef={"resource": "limits.foo", "divisor": "3"}),
        from_(resourceFieldRef={"resource": ""}),
        from_(resourceFieldRef={"resource": "limits.cpu", "divisor": "3"}),
        from_(resourceFieldRef={"resource": "limits.memory", "divisor": "3"}),
        from_(resourceFieldRef={"resource": "requests.ephemeral-storage", "divisor": "3"}),
        from_(resourceFieldRef={"resource": "requests.hugepages-2Mi", "divisor": "3"}),
        from_(configMapKeyRef={"name": "", "key": ""}),
        from_(secretKeyRef={"name": "x", "key": "a b"}),
        from_(secretKeyRef={"name": "x", "key": ".."}),
        from_(secretKeyRef={"name": "x", "key": "..a"}),
        from_(secretKeyRef={"name": "x", "key": "k"}, configMapKeyRef={"name": "x", "key": "k"}),
        from_(fileKeyRef={"key": "a", "path": "b", "volumeName": "c"}),
    ),
    "variables from": pod(
        container={
            "envFrom": [
                {"prefix": "a=b"},
                {"configMapRef": {}},
                {"secretRef": {"name": "X"}, "configMapRef": {"name": "a"}},
            ]
        }
    ),
    "probes": pod(
        container={
            "livenessProbe": {"tcpSocket": {"port": 0}, "successThreshold": 2, "timeoutSeconds": -1},
            "readinessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 3},
            "startupProbe": {},
        }
    ),
    "a probe two ways": pod(container={"livenessProbe": {"httpGet": {"port": 80}, "exec": {}, "grpc": {"port": 1}}}),
    "an http probe": pod(
        container={
            "livenessProbe": {
                "httpGet": {"port": "", "path": "x", "httpHeaders": [{"name": "a b", "value": ""}], "scheme": "X"},
                "terminationGracePeriodSeconds": 0,
            }
        }
    ),
    "hooks": pod(container={"lifecycle": {"preStop": {}, "postStart": {"sleep": {"seconds": 40}}}}),
    "resources": pod(
        container={
            "resources": {
                "limits": {
                    "cpu": "1",
                    "foo": "1",
                    "a/b": "1",
                    "hugepages-2Mi": "3Mi",
                    "nvidia.com/gpu": "1.5",
                    "x.kubernetes.io/y": "1",
                    "requests.nvidia.com/gpu": "1",
                },
                "requests": {"cpu": "2", "nvidia.com/gpu": "1", "a.b/c": "1", "memory": "-1"},
            }
        }
    ),
    "only huge pages": pod(container={"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}),
    "claims that do not exist": pod(
        {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "a"}, {"name": "B"}]},
        container={
            "resources": {"claims": [{"name": "z"}, {"name": "a"}, {"name": "a", "request": "R"}, {"name": ""}]}
        },
    ),
    "resources of the whole pod": pod(
        {"resources": {"limits": {"cpu": "1", "nvidia.com/gpu": 1}, "requests": {"cpu": "500m"}}},
        container={"resources": {"limits": {"cpu": "2"}}},
    ),
    "negative amounts": pod(container={"resources": {"limits": {"cpu": "-1", "memory": "-1"}}}),
    "storage of the whole pod": pod({"resources": {"limits": {"cpu": "1", "ephemeral-storage": "1Gi"}}}),
    "container security": pod(
        container={
            "securityContext": {
                "runAsUser": -1,
                "runAsGroup": 2**31,
                "privileged": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"add": ["CAP_SYS_ADMIN"]},
                "procMount": "X",
                "seccompProfile": {"type": "X", "localhostProfile": "a"},
                "appArmorProfile": {"type": "Localhost"},
            }
        }
    ),
    "unmasked": pod(container={"securityContext": {"procMount": "Unmasked"}}),
    "more profiles": pod(
        {
            "securityContext": {
                "seccompProfile": {"type": "Localhost", "localhostProfile": "/a/../b"},
                "appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"},
            }
        },
        container={"securityContext": {"seccompProfile": {}, "appArmorProfile": {"type": "X"}}},
    ),
    "policies": pod(
        container={
            "imagePullPolicy": "X",
            "terminationMessagePolicy": "X",
            "resizePolicy": [{"resourceName": "x", "restartPolicy": "y"}, {"resourceName": "x", "restartPolicy": "y"}],
        }
    ),
    "a restart policy on a container": pod(container={"restartPolicy": "Always"}),
    "resize policy of pods that never restart": pod(
        {"restartPolicy": "Never"},
        container={"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
    ),
    "the spec's own fields": pod(
        {
            "containers": [],
            "restartPolicy": "X",
            "dnsPolicy": "X",
            "nodeSelector": {"a b": "x"},
            "activeDeadlineSeconds": 0,
            "hostname": "A",
            "subdomain": "B",
            "serviceAccountName": "X",
            "nodeName": "X",
            "terminationGracePeriodSeconds": -1,
            "overhead": {"foo": "1"},
            "os": {"name": "X"},
            "readinessGates": [{"conditionType": ""}],
            "schedulingGates": [{"name": "a b"}, {"name": "a b"}],
            "hostAliases": [{"ip": "x", "hostnames": ["A"]}],
        }
    ),
    "init containers": pod(
        {
            "initContainers": [
                {"name": "main", "image": "i", "restartPolicy": "OnFailure"},
                {"name": "b", "image": "i", "lifecycle": {}, "livenessProbe": {"exec": {"command": ["x"]}}},
                {"name": "c", "image": "i", "restartPolicy": "Always", "startupProbe": {}},
            ]
        }
    ),
    "ephemeral containers on create": pod(
        {"ephemeralContainers": [{"name": "main", "image": "i", "ports": [{"containerPort": 1}]}]}
    ),
    "a node before the gates are gone": pod({"nodeName": "n", "schedulingGates": [{"name": "a"}]}),
    "security of the pod": pod(
        {
            "hostPID": True,
            "shareProcessNamespace": True,
            "hostNetwork": True,
            "securityContext": {
                "fsGroup": -1,
                "runAsUser": -1,
                "runAsGroup": -1,
                "supplementalGroups": [1, -1],
                "fsGroupChangePolicy": "X",
                "supplementalGroupsPolicy": "X",
                "seLinuxChangePolicy": "X",
                "sysctls": [
                    {"name": "", "value": ""},
                    {"name": "A B", "value": ""},
                    {"name": "kernel.x", "value": ""},
                    {"name": "kernel.x", "value": ""},
                    {"name": "net.ipv4.x", "value": ""},
                ],
            },
        }
    ),
    "host users": pod({"hostUsers": False, "hostNetwork": True, "hostPID": True, "hostIPC": True}),
    "windows options on linux": pod(
        {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": ""}}}
    ),
    "dns": pod(
        {
            "dnsConfig": {
                "nameservers": ["x", "1.1.1.1", "1.1.1.2", "1.1.1.3"],
                "searches": ["A", "a" * 260],
                "options": [{"value": "x"}],
            }
        }
    ),
    "no dns at all": pod({"dnsPolicy": "None"}),
    "no nameserver": pod({"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}}),
    "tolerations": pod(
        {
            "tolerations": [
                {"key": "a b", "operator": "X"},
                {"operator": "Equal"},
                {"key": "a", "tolerationSeconds": 5, "effect": "NoSchedule"},
                {"key": "a", "operator": "Exists", "value": "x"},
                {"key": "a", "value": "x y"},
                {"key": "a", "effect": "X"},
            ]
        }
    ),
    "affinity": pod(
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "", "operator": "In"},
                                    {"key": "a", "operator": "Exists", "values": ["x"]},
                                    {"key": "a", "operator": "Gt", "values": []},
                                    {"key": "a", "operator": "X", "values": ["a b"]},
                                ],
                                "matchFields": [
                                    {"key": "x", "operator": "Exists"},
                                    {"key": "metadata.name", "operator": "In", "values": ["A"]},
                                    {"key": "metadata.name", "operator": "In", "values": []},
                                ],
                            }
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}],
                },
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "", "namespaces": ["A"], "labelSelector": {"matchLabels": {"a": "b c"}}},
                        {"topologyKey": "a b", "matchLabelKeys": ["x"]},
                        {
                            "topologyKey": "z",
                            "labelSelector": {},
                            "matchLabelKeys": ["k", "b d"],
                            "mismatchLabelKeys": ["k"],
                        },
                    ],
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 101,
                            "podAffinityTerm": {
                                "topologyKey": "z",
                                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "X"}]},
                            },
                        }
                    ],
                },
            }
        }
    ),
    "no node selector terms": pod(
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}
    ),
    "spreading": pod(
        {
            "topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X", "minDomains": 0},
                {
                    "maxSkew": 1,
                    "topologyKey": "z",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "minDomains": 1,
                    "nodeAffinityPolicy": "X",
                    "matchLabelKeys": ["a b"],
                },
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"},
            ]
        }
    ),
    "volumes": pod(
        {
            "volumes": [
                {"name": ""},
                {"name": "A"},
                {"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}, "secret": {}},
                {"name": "b", "hostPath": {"path": ""}},
                {"name": "c", "hostPath": {"path": "/a/../b", "type": "X"}},
                {"name": "d", "secret": {"defaultMode": 0o1000, "items": [{"key": "", "path": "../x", "mode": -1}]}},
                {"name": "e", "configMap": {"items": [{"key": "k", "path": "/abs"}, {"key": "k", "path": "..x"}]}},
                {"name": "f", "persistentVolumeClaim": {"claimName": ""}},
                {"name": "g", "nfs": {"server": "", "path": ""}},
                {
                    "name": "h",
                    "downwardAPI": {
                        "items": [{"path": ""}, {"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]
                    },
                },
                {"name": "i", "ephemeral": {}},
                {"name": "j", "csi": {"driver": ""}},
                {"name": "k", "gitRepo": {"repository": "", "directory": "/x"}},
                {"name": "dup", "emptyDir": {"sizeLimit": "-1"}},
                {"name": "dup", "emptyDir": {}},
                {"name": "dup", "emptyDir": {}},
                {"name": "l", "iscsi": {"lun": 300}},
                {"name": "m", "fc": {}},
                {"name": "n", "rbd": {"monitors": [], "image": ""}},
                {"name": "o", "flexVolume": {"driver": "", "options": {"a.k8s.io/b": "c"}}},
                {"name": "q", "azureDisk": {"diskName": "", "diskURI": ""}},
                {"name": "r", "glusterfs": {"endpoints": "", "path": ""}},
                {"name": "s", "cephfs": {"monitors": []}},
            ]
        }
    ),
    "an ephemeral claim": with_volume(
        {"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {"accessModes": ["X"]}}}}
    ),
    "projected": pod(
        {
            "volumes": [
                {
                    "name": "p",
                    "projected": {
                        "defaultMode": -1,
                        "sources": [
                            {"secret": {"name": "", "items": [{"key": "a", "path": "x"}]}, "configMap": {"name": "c"}},
                            {"configMap": {"name": "c", "items": [{"key": "a", "path": "x"}]}},
                            {"serviceAccountToken": {"expirationSeconds": 5, "path": ""}},
                            {"serviceAccountToken": {"expirationSeconds": 2**33, "path": "../t"}},
                            {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "status.podIP"}}]}},
                        ],
                    },
                }
            ]
        }
    ),
    "mounts": pod(
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}]},
        container={
            "volumeMounts": [
                {"name": "", "mountPath": ""},
                {"name": "nope", "mountPath": "/a"},
                {"name": "v", "mountPath": "/a"},
                {"name": "v", "mountPath": "/b", "subPath": "/abs", "subPathExpr": "../x"},
                {"name": "v", "mountPath": "/c", "mountPropagation": "Bidirectional"},
                {"name": "v", "mountPath": "/d", "mountPropagation": "X"},
                {"name": "v", "mountPath": "/e", "recursiveReadOnly": "Enabled"},
                {"name": "v", "mountPath": "/f", "recursiveReadOnly": "X"},
                {"name": "c", "mountPath": "/dev/x"},
            ],
            "volumeDevices": [
                {"name": "c", "devicePath": "/dev/x"},
                {"name": "c", "devicePath": "/dev/../x"},
                {"name": "v", "devicePath": ""},
                {"name": "nope", "devicePath": "/dev/y"},
            ],
        },
    ),
    "annotations": pod(
        annotations={
            "controller.kubernetes.io/pod-deletion-cost": "+1",
            "seccomp.security.alpha.kubernetes.io/pod": "x",
            "container.apparmor.security.beta.kubernetes.io/nope": "bad",
            "kubernetes.io/config.mirror": "m",
        }
    ),
    "annotations that contradict": pod(
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        container={"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
        annotations={
            "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
            "container.apparmor.security.beta.kubernetes.io/main": "runtime/default",
        },
    ),
    "names that are too long": pod(name="a" * 254, generateName="A"),
    "owners and finalizers": pod(
        ownerReferences=[
            {"apiVersion": "", "kind": "", "name": "", "uid": ""},
            {"apiVersion": "a/v1", "kind": "X", "name": "a", "uid": "b", "controller": True},
            {"apiVersion": "v1", "kind": "Pod", "name": "c", "uid": "b", "controller": True},
        ],
        finalizers=["a", "x y", "a.b/c"],
        annotations={"A b": "x"},
    ),
    "several sources": pod(
        {"volumes": [{"name": "v", "configMap": {"name": "x"}, "downwardAPI": {}, "csi": {"driver": "x"}}]}
    ),
    "iscsi": with_volume(
        {"iscsi": {"targetPortal": "x", "iqn": "foo", "lun": 0, "chapAuthSession": True, "initiatorName": "iqn.x"}}
    ),
    "fc": with_volume({"fc": {"targetWWNs": ["a"], "wwids": ["b"], "lun": 300}}),
    "quobyte and flocker": pod(
        {
            "volumes": [
                {"name": "a", "quobyte": {"registry": "x", "volume": ""}},
                {"name": "b", "flocker": {"datasetName": "a/b", "datasetUUID": "c"}},
                {"name": "c", "flocker": {}},
                {"name": "d", "cinder": {"volumeID": "", "secretRef": {}}},
                {"name": "e", "storageos": {"volumeName": "A", "volumeNamespace": "B"}},
                {"name": "f", "gcePersistentDisk": {"pdName": "", "partition": 300}},
                {"name": "g", "azureDisk": {"diskName": "a", "diskURI": "x", "kind": "Managed", "cachingMode": "X"}},
                {"name": "h", "awsElasticBlockStore": {"volumeID": "", "partition": -1}},
                {"name": "i", "vsphereVolume": {"volumePath": ""}},
                {"name": "j", "portworxVolume": {"volumeID": ""}},
                {"name": "k", "photonPersistentDisk": {"pdID": ""}},
                {"name": "l", "azureFile": {"secretName": "", "shareName": ""}},
                {"name": "m", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "A"}}},
            ]
        }
    ),
    "a claim of an ephemeral volume": pod(
        {
            "volumes": [
                {
                    "name": "v",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
                        }
                    },
                },
                {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}},
            ]
        }
    ),
    "a priority of one's own": pod({"priority": 5}),
    "a deadline too far": pod({"activeDeadlineSeconds": 2**31}),
    "labels and names": pod(name="A_b", labels={"a b": "c d"}),
}

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += UPDATES
CASES += PARTS
