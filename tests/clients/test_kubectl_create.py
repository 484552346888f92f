"""What kubectl makes from flags: `create x`, run, expose, debug, tokens; most send protobuf since 1.32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.clients.manifests import DEPLOYMENT, POD
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server

CREATE: list[tuple[list[str], str]] = [
    (["configmap", "cm", "--from-literal=a=1"], "configmap/cm created"),
    (["secret", "generic", "sec", "--from-literal=a=1"], "secret/sec created"),
    (["secret", "docker-registry", "reg", "--docker-username=u", "--docker-password=p"], "secret/reg created"),
    (["serviceaccount", "robot"], "serviceaccount/robot created"),
    (["job", "once", "--image=busybox:1", "--", "true"], "job.batch/once created"),
    (["cronjob", "often", "--image=busybox:1", "--schedule=*/5 * * * *"], "cronjob.batch/often created"),
    (["deployment", "web", "--image=busybox:1", "--replicas=2"], "deployment.apps/web created"),
    (["service", "clusterip", "web", "--tcp=80:8080"], "service/web created"),
    (["service", "nodeport", "out", "--tcp=80"], "service/out created"),
    (["service", "externalname", "ext", "--external-name=example.com"], "service/ext created"),
    (["quota", "q", "--hard=pods=5,requests.cpu=2"], "resourcequota/q created"),
    (
        ["role", "reader", "--verb=get,list", "--resource=pods,jobs.batch"],
        "role.rbac.authorization.k8s.io/reader created",
    ),
    (["rolebinding", "rb", "--role=reader", "--user=alice"], "rolebinding.rbac.authorization.k8s.io/rb created"),
    (["poddisruptionbudget", "pdb", "--selector=a=b", "--min-available=1"], "poddisruptionbudget.policy/pdb created"),
    (["ingress", "ing", "--rule=example.com/*=web:80"], "ingress.networking.k8s.io/ing created"),
]


def test_every_create_command(k: Kubectl) -> None:
    for arguments, expected in CREATE:
        assert k("create", *arguments) == f"{expected}\n"
    assert json.loads(k("get", "cm", "cm", "-o", "json"))["data"] == {"a": "1"}
    assert json.loads(k("get", "secret", "sec", "-o", "json"))["data"] == {"a": "MQ=="}
    assert json.loads(k("get", "job", "once", "-o", "json"))["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert json.loads(k("get", "cronjob", "often", "-o", "json"))["spec"]["schedule"] == "*/5 * * * *"
    assert json.loads(k("get", "deploy", "web", "-o", "json"))["spec"]["replicas"] == 2
    ports = json.loads(k("get", "svc", "web", "-o", "json"))["spec"]["ports"]
    assert [(p["port"], p["targetPort"]) for p in ports] == [(80, 8080)]
    rules = json.loads(k("get", "role", "reader", "-o", "json"))["rules"]
    assert {tuple(rule["apiGroups"]) for rule in rules} == {("",), ("batch",)}
    assert k("create", "job", "again", "--from=cronjob/often") == "job.batch/again created\n"


def test_create_with_dry_run_and_output(k: Kubectl) -> None:
    output = k("create", "configmap", "x", "--from-literal=a=1", "--dry-run=server", "-o", "json")
    assert json.loads(output)["metadata"]["uid"]
    assert k("get", "cm", "x", "--ignore-not-found") == ""


def test_create_cluster_scoped_objects(k: Kubectl) -> None:
    name = f"{k.namespace}-x"
    assert k("create", "namespace", name) == f"namespace/{name} created\n"
    output = k("create", "clusterrole", name, "--verb=get", "--resource=nodes")
    assert output == f"clusterrole.rbac.authorization.k8s.io/{name} created\n"
    bound = k("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=developers")
    assert bound == f"clusterrolebinding.rbac.authorization.k8s.io/{name} created\n"
    high = k("create", "priorityclass", name, "--value=100", "--description=for tests")
    assert high == f"priorityclass.scheduling.k8s.io/{name} created\n"
    k("delete", "priorityclass,clusterrolebinding,clusterrole", name)
    k("delete", "namespace", name, "--wait=false")


def test_create_token(k: Kubectl) -> None:
    token = k("create", "token", "default", "--duration=1h").strip()
    assert len(token.split(".")) == 3
    if k.minor >= 28:
        whoami = json.loads(k("auth", "whoami", "-o", "json", f"--as=system:serviceaccount:{k.namespace}:default"))
        assert whoami["status"]["userInfo"]["username"] == f"system:serviceaccount:{k.namespace}:default"


def test_run_and_expose(k: Kubectl) -> None:
    assert k("run", "web", "--image=busybox:1", "--port=80", "--labels=app=web") == "pod/web created\n"
    assert k("expose", "pod", "web", "--port=80", "--target-port=8080") == "service/web exposed\n"
    service = json.loads(k("get", "service", "web", "-o", "json"))["spec"]
    assert (service["selector"], service["ports"][0]["targetPort"]) == ({"app": "web"}, 8080)
    k("create", "-f", "-", stdin=DEPLOYMENT.replace("name: web", "name: front"))
    assert k("expose", "deployment", "front", "--port=90", "--name=front") == "service/front exposed\n"
    manifest = json.loads(k("run", "dry", "--image=busybox", "--dry-run=client", "-o", "json"))
    assert manifest["spec"]["containers"][0]["name"] == "dry"


def test_debug_adds_a_container_or_copies_the_pod(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=POD)
    k("debug", "p1", "--image=busybox:1", "--attach=false", "--container=probe", "--profile=general")
    names = k("get", "pod", "p1", "-o", "jsonpath={.spec.ephemeralContainers[*].name}")
    assert names == "probe"
    k("debug", "p1", "--image=busybox:1", "--attach=false", "--copy-to=copy", "--container=probe", "--profile=general")
    copied = k("get", "pod", "copy", "-o", "jsonpath={.spec.containers[*].name}")
    assert set(copied.split()) == {"main", "probe"}


def test_auth_can_i(k: Kubectl, server: Server) -> None:
    assert k("auth", "can-i", "create", "pods") == "yes\n"
    denied = k.run("auth", "can-i", "create", "pods", "--as=alice")
    assert (denied.returncode, denied.stdout.splitlines()[-1]) == (1, "no")
    listed = k("auth", "can-i", "--list")
    assert listed.splitlines()[0].split()[0] == "Resources"
    assert "*.*" in listed
    if k.minor >= 28:
        assert "Username" in k("auth", "whoami")
    reconcile = k("create", "role", "r", "--verb=get", "--resource=pods", "--dry-run=client", "-o", "yaml")
    assert "role.rbac.authorization.k8s.io/r reconciled" in k("auth", "reconcile", "-f", "-", stdin=reconcile)


def test_config_commands_write_the_file_only(k: Kubectl, tmp_path: Path) -> None:
    assert k.kubeconfig is not None
    copy = tmp_path / "config"
    copy.write_text(k.kubeconfig.read_text())
    own = k.using(copy, tmp_path)
    context = own("config", "current-context").strip()
    assert own("config", "set-context", "--current", f"--namespace={k.namespace}").startswith(f'Context "{context}"')
    assert k.namespace in own("config", "view", "--minify", "-o", "jsonpath={..namespace}")
    own("create", "configmap", "here", "--from-literal=a=1")
    assert "configmap/here" in k("get", "cm", "-o", "name")
    assert own("config", "get-contexts", "-o", "name").split() == [context]


@pytest.mark.parametrize("kind", ["pod", "job", "deployment"])
def test_wrong_types_are_rejected(k: Kubectl, kind: str) -> None:
    spec = {"pod": "terminationGracePeriodSeconds", "job": "parallelism", "deployment": "replicas"}[kind]
    version = {"pod": "v1", "job": "batch/v1", "deployment": "apps/v1"}[kind]
    manifest = f"apiVersion: {version}\nkind: {kind.capitalize()}\nmetadata: {{name: x}}\nspec: {{{spec}: many}}\n"
    complaint = k.fails("create", "-f", "-", stdin=manifest)
    assert f"{spec} of type int" in complaint
