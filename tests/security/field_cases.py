"""Pods that print what they see of their fields. The same pods run on the plane and on a real node."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.objects import Object


@dataclass(frozen=True)
class FieldCase:
    """`facts` are arguments of the program in `pod_facts.py`. Without facts the pod's status is the result."""

    facts: tuple[str, ...] = ()
    pod: Object = field(default_factory=dict)
    container: Object = field(default_factory=dict)
    security: Object = field(default_factory=dict)  # of the container
    volumes: Object = field(default_factory=dict)  # mounted at /name
    mount: Object = field(default_factory=dict)  # merged into each mount
    script: str = ""  # instead of the facts

    def spec(self, image: str, program: str) -> Object:
        """`program` is the source of `pod_facts.py`."""
        main: Object = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", self.script]
            if self.script
            else ["python3", "-S", "-B", "-c", program, *self.facts],
            "volumeMounts": [{"name": name, "mountPath": f"/{name}", **self.mount} for name in self.volumes],
            **({"securityContext": self.security} if self.security else {}),
            **self.container,
        }
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [main],
            "volumes": [{"name": name, **volume} for name, volume in self.volumes.items()],
            **self.pod,
        }


def in_pod(**context: object) -> Object:
    return {"securityContext": context}


CONFIG: Object = {"configMap": {"name": "fields"}}
PRIVATE_CONFIG: Object = {"configMap": {"name": "fields", "defaultMode": 0o400}}
SECRET: Object = {"secret": {"secretName": "fields"}}
ITEMS: Object = {
    "secret": {
        "secretName": "fields",
        "defaultMode": 0o440,
        "items": [{"key": "password", "path": "deep/password", "mode": 0o600}, {"key": "user", "path": "user"}],
    }
}
FIELDS: Object = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
PROJECTED: Object = {
    "projected": {
        "sources": [
            {"configMap": {"name": "fields"}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400}]}},
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        ]
    }
}
EMPTY: Object = {"emptyDir": {}}
MEMORY: Object = {"emptyDir": {"medium": "Memory"}}
USER = in_pod(runAsUser=1000, runAsGroup=1000)

CASES: dict[str, FieldCase] = {
    # users and groups
    "default-user": FieldCase(("ids", "umask", "cwd", "status:NoNewPrivs", "status:CapEff", "status:CapBnd")),
    "run-as-user": FieldCase(("ids", "umask", "env:HOME", "status:CapEff", "status:CapPrm"), in_pod(runAsUser=12345)),
    "run-as-group": FieldCase(("ids",), USER),
    "container-user-wins": FieldCase(("ids",), USER, security={"runAsUser": 2000, "runAsGroup": 3000}),
    "only-a-group": FieldCase(("ids",), in_pod(runAsGroup=3000)),
    "supplemental-groups": FieldCase(("ids",), in_pod(supplementalGroups=[5, 4000], runAsUser=12345)),
    "root-with-groups": FieldCase(("ids",), in_pod(supplementalGroups=[4000], fsGroup=5000)),
    "non-root-refused": FieldCase(pod=in_pod(runAsNonRoot=True)),
    "non-root-with-root": FieldCase(pod=in_pod(runAsNonRoot=True, runAsUser=0)),
    "non-root-allowed": FieldCase(("ids",), in_pod(runAsNonRoot=True, runAsUser=12345)),
    # volumes without and with a group
    "volume-modes": FieldCase(
        ("tree:/config", "tree:/secret", "tree:/items", "tree:/names", "tree:/all", "stat:/empty", "stat:/memory"),
        volumes={
            "config": CONFIG, "secret": SECRET, "items": ITEMS, "names": FIELDS, "all": PROJECTED, "empty": EMPTY,
            "memory": MEMORY,
        },
    ),
    "group-of-empty-dir": FieldCase(
        ("ids", "stat:/empty", "create:/empty/new", "mkdir:/empty/sub"), in_pod(fsGroup=5000), volumes={"empty": EMPTY}
    ),
    "group-of-memory": FieldCase(
        ("stat:/memory", "create:/memory/new"), in_pod(fsGroup=5000, runAsUser=12345), volumes={"memory": MEMORY}
    ),
    "group-of-a-user": FieldCase(
        ("ids", "stat:/empty", "create:/empty/new"), in_pod(fsGroup=5000, runAsUser=12345), volumes={"empty": EMPTY}
    ),
    "group-of-config": FieldCase(
        ("tree:/config", "read:/config/key"), in_pod(fsGroup=5000, runAsUser=12345), volumes={"config": PRIVATE_CONFIG}
    ),
    "group-of-secret": FieldCase(("tree:/items",), in_pod(fsGroup=5000, runAsUser=12345), volumes={"items": ITEMS}),
    "group-of-projected": FieldCase(("tree:/all",), in_pod(fsGroup=5000), volumes={"all": PROJECTED}),
    "group-of-fields": FieldCase(("tree:/names",), in_pod(fsGroup=5000), volumes={"names": FIELDS}),
    "group-on-root-mismatch": FieldCase(
        ("stat:/empty", "tree:/config"),
        in_pod(fsGroup=5000, fsGroupChangePolicy="OnRootMismatch"),
        volumes={"empty": EMPTY, "config": CONFIG},
    ),
    "token-of-a-user": FieldCase(("tree:/all",), in_pod(runAsUser=12345), volumes={"all": PROJECTED}),
    "volumes-of-config-are-read-only": FieldCase(
        ("write:/config/x", "write:/secret/x", "write:/names/x", "write:/all/x", "write:/empty/x"),
        volumes={"config": CONFIG, "secret": SECRET, "names": FIELDS, "all": PROJECTED, "empty": EMPTY},
    ),
    "read-only-mount": FieldCase(
        ("write:/empty/x",), volumes={"empty": EMPTY}, mount={"readOnly": True}
    ),
    "mount-options": FieldCase(
        ("mount:/proc", "mount:/sys", "mount:/dev/pts", "mount:/dev/shm", "mount:/dev/mqueue")
    ),
    # what a container may do
    "read-only-root": FieldCase(
        ("write:/x", "write:/tmp/x", "write:/etc/x", "write:/dev/shm/x", "write:/empty/x"),
        security={"readOnlyRootFilesystem": True},
        volumes={"empty": EMPTY},
    ),
    "no-capabilities": FieldCase(
        ("status:CapEff", "status:CapBnd", "status:CapAmb", "status:CapInh"),
        security={"capabilities": {"drop": ["ALL"]}},
    ),
    "one-capability": FieldCase(
        ("status:CapEff", "status:CapBnd"), security={"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}
    ),
    "added-capability": FieldCase(
        ("status:CapEff", "status:CapBnd"), security={"capabilities": {"add": ["SYS_PTRACE"]}}
    ),
    "no-escalation": FieldCase(("status:NoNewPrivs",), security={"allowPrivilegeEscalation": False}),
    "privileged": FieldCase(("status:NoNewPrivs", "status:Seccomp"), security={"privileged": True}),
    "seccomp-default": FieldCase(("status:Seccomp",), in_pod(seccompProfile={"type": "RuntimeDefault"})),
    "seccomp-unconfined": FieldCase(("status:Seccomp",), in_pod(seccompProfile={"type": "Unconfined"})),
    "seccomp-of-the-container": FieldCase(
        ("status:Seccomp",),
        in_pod(seccompProfile={"type": "Unconfined"}),
        security={"seccompProfile": {"type": "RuntimeDefault"}},
    ),
    # namespaces
    "own-processes": FieldCase(("is-first-process", "namespaces")),
    "host-processes": FieldCase(("is-first-process",), {"hostPID": True}),
    "safe-sysctls": FieldCase(
        ("sysctl:net.ipv4.tcp_keepalive_time", "sysctl:kernel.shm_rmid_forced", "sysctl:net.ipv4.ip_local_port_range"),
        in_pod(
            sysctls=[
                {"name": "net.ipv4.tcp_keepalive_time", "value": "123"},
                {"name": "kernel/shm_rmid_forced", "value": "1"},
                {"name": "net.ipv4.ip_local_port_range", "value": "40000 40100"},
            ]
        ),
    ),
    "unsafe-sysctl": FieldCase(pod=in_pod(sysctls=[{"name": "kernel.msgmax", "value": "65536"}])),
    "windows": FieldCase(pod={"os": {"name": "windows"}}),
    "app-armor": FieldCase(pod=in_pod(appArmorProfile={"type": "RuntimeDefault"})),
    "app-armor-unconfined": FieldCase(("ids",), in_pod(appArmorProfile={"type": "Unconfined"})),
    # names
    "host-name": FieldCase(("hostname", "env:HOSTNAME", "read:/etc/hostname"), {"hostname": "another"}),
    "full-name": FieldCase(
        ("hostname", "env:HOSTNAME", "read:/etc/hostname"),
        {"hostname": "host", "subdomain": "sub", "setHostnameAsFQDN": True},
    ),
    "host-aliases": FieldCase(
        ("hosts:1.2.3",), {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["alias.a", "alias.b"]}, {"ip": "1.2.3.5"}]}
    ),
    "own-dns": FieldCase(
        ("read:/etc/resolv.conf",),
        {
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.1", "192.0.2.2"],
                "searches": ["a.example", "b.example"],
                "options": [{"name": "ndots", "value": "2"}],  # a kubelet writes several in any order
            },
        },
    ),
    # environment, files, ends
    "environment": FieldCase(
        ("env:NAME", "env:LIMIT", "env:PRE_key", "env:MISSING", "env:EXPANDED", "env:LABEL"),
        container={
            "env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "MISSING", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}}},
                {"name": "EXPANDED", "value": "$(NAME)-$(UNKNOWN)-$$(NAME)"},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['case']"}}},
            ],
            "envFrom": [{"prefix": "PRE_", "configMapRef": {"name": "fields"}}],
            "resources": {"limits": {"memory": "300Mi"}},
        },
    ),
    "no-service-links": FieldCase(("variables:SERVICE_HOST",), {"enableServiceLinks": False}),
    "working-directory": FieldCase(("cwd", "stat:/work/dir"), container={"workingDir": "/work/dir"}),
    "terminal": FieldCase(("is-terminal", "env:TERM"), container={"tty": True}),
    "no-terminal": FieldCase(("is-terminal",)),
    "sub-path": FieldCase(
        ("tree:/config",), volumes={"config": CONFIG}, mount={"subPath": "key"}
    ),
    "sub-path-of-a-variable": FieldCase(
        ("stat:/empty", "create:/empty/new"),
        volumes={"empty": EMPTY},
        mount={"subPathExpr": "a/$(POD)"},
        container={"env": [{"name": "POD", "value": "b"}]},
    ),
    "message-file": FieldCase(
        container={"terminationMessagePath": "/tmp/end"}, script="echo from the file > /tmp/end; echo log; exit 3"
    ),
    "message-of-logs": FieldCase(
        container={"terminationMessagePolicy": "FallbackToLogsOnError"}, script="echo the end; exit 4"
    ),
    "deadline": FieldCase(pod={"activeDeadlineSeconds": 1}, script="exec sleep 1000"),
    # storage limits
    "empty-dir-limit": FieldCase(
        volumes={"empty": {"emptyDir": {"sizeLimit": "1Mi"}}},
        script="python3 -S -c \"open('/empty/file', 'wb').write(bytes(5000000))\"; exec sleep 1000",
    ),
    "pod-storage-limit": FieldCase(
        volumes={"empty": EMPTY},
        container={"resources": {"limits": {"ephemeral-storage": "2Mi"}}},
        script="python3 -S -c \"open('/empty/file', 'wb').write(bytes(5000000))\"; exec sleep 1000",
    ),
    "writable-layer-limit": FieldCase(
        container={"resources": {"limits": {"ephemeral-storage": "2Mi"}}},
        script="python3 -S -c \"open('/tmp/file', 'wb').write(bytes(5000000))\"; exec sleep 1000",
    ),
}  # fmt: skip
