"""What kubectl reads: get in every form, describe, events, wait, explain, discovery."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request

from tests.clients.manifests import CLAIM, CONFIG_MAP, DEPLOYMENT, JOB, POD
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server


def rows(table: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=10)


def two_pods(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=f"{POD}---\n{POD.replace('p1', 'p2').replace('app: web', 'app: db')}")


def test_get_prints_tables(k: Kubectl) -> None:
    two_pods(k)
    header, first, second = rows(k("get", "pods"))
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert first[:4] == ["p1", "0/1", "Pending", "0"]
    assert second[0] == "p2"
    wide = rows(k("get", "pods", "-o", "wide"))
    assert wide[0][5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert wide[1][5:] == ["<none>"] * 4
    everywhere = rows(k("get", "pods", "-A"))
    assert everywhere[0][0] == "NAMESPACE"
    assert [k.namespace, "p1"] in [row[:2] for row in everywhere]
    assert [row[0] for row in rows(k("get", "pods", "-l", "app in (web)", "--no-headers"))] == ["p1"]
    selected = k("get", "pods", "--field-selector=metadata.name=p2,status.phase=Pending", "-o", "name")
    assert selected == "pod/p2\n"
    labelled = rows(k("get", "pods", "--show-labels", "-L", "app"))
    assert labelled[0][-2:] == ["APP", "LABELS"]
    assert labelled[1][-2:] == ["web", "app=web"]
    assert k.run("get", "pods", "-l", "app=none").stderr == f"No resources found in {k.namespace} namespace.\n"


def test_get_in_every_output_form(k: Kubectl) -> None:
    two_pods(k)
    assert k("get", "pods", "-o", "name").split() == ["pod/p1", "pod/p2"]
    assert k("get", "pods", "-o", "jsonpath={.items[*].metadata.name}") == "p1 p2"
    columns = rows(k("get", "pods", "-o", "custom-columns=N:.metadata.name,I:.spec.containers[0].image"))
    assert columns == [["N", "I"], ["p1", "busybox:1.36"], ["p2", "busybox:1.36"]]
    assert k("get", "pods", "-o", "go-template={{len .items}}") == "2"
    assert json.loads(k("get", "pods", "-o", "json"))["kind"] == "List"
    assert k("get", "pod", "p1", "-o", "yaml").startswith("apiVersion: v1\nkind: Pod\n")
    assert rows(k("get", "pods", "--server-print=false"))[0] == ["NAME", "AGE"]
    assert [row[0] for row in rows(k("get", "pods", "--sort-by={.metadata.name}"))] == ["NAME", "p1", "p2"]
    assert [row[0] for row in rows(k("get", "pods", "--chunk-size=1"))] == ["NAME", "p1", "p2"]
    pod = json.loads(k("get", "pod", "p1", "--subresource=status", "-o", "json"))
    assert pod["status"]["phase"] == "Pending"


def test_get_of_several_kinds(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=f"{POD}---\n{JOB}---\n{DEPLOYMENT}---\n{CONFIG_MAP}---\n{CLAIM}")
    k("create", "service", "clusterip", "web", "--tcp=80:8080")
    everything = k("get", "all", "-o", "name").split()
    assert {"pod/p1", "service/web", "deployment.apps/web", "job.batch/train"} <= set(everything)
    assert "configmap/settings" not in everything
    job = rows(k("get", "job"))
    assert job[0] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert (job[1][0], job[1][2]) == ("train", "0/1")
    assert rows(k("get", "deploy"))[1][:4] == ["web", "0/2", "0", "0"]
    service = rows(k("get", "svc", "web"))
    assert service[0] == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert (service[1][1], service[1][3], service[1][4]) == ("ClusterIP", "<none>", "80/TCP")
    assert rows(k("get", "pvc"))[1][:2] == ["data", "Pending"]
    assert rows(k("get", "cm", "settings"))[1][:2] == ["settings", "2"]
    assert "configmap/settings" in k("get", "cm/settings", "job/train", "-o", "name").split()
    assert 'the server doesn\'t have a resource type "nothings"' in k.fails("get", "nothings")
    assert 'Error from server (NotFound): pods "nobody" not found' in k.fails("get", "pod", "nobody")
    assert "namespace/default" in k("get", "ns", "-o", "name").split()


def test_get_watch_follows_changes(k: Kubectl) -> None:
    two_pods(k)
    watching = k.start("get", "pods", "-w", "--output-watch-events")
    watching_pod = k.start("get", "pod", "p1", "-w", "-o", "jsonpath={.metadata.labels.step}{'\\n'}")
    try:
        assert [line.split()[:2] for line in lines(watching, 3)] == [
            ["EVENT", "NAME"],
            ["ADDED", "p1"],
            ["ADDED", "p2"],
        ]
        assert lines(watching_pod, 1) == [""]
        k("label", "pod", "p1", "step=1")
        assert lines(watching_pod, 1) == ["1"]
        assert lines(watching, 1)[0].split()[:2] == ["MODIFIED", "p1"]
        k("delete", "pod", "p2", "--grace-period=0", "--force")
        while (event := lines(watching, 1)[0].split()[:2]) != ["DELETED", "p2"]:
            assert event == ["MODIFIED", "p2"]
    finally:
        end(watching)
        end(watching_pod)


def test_describe(k: Kubectl, server: Server) -> None:
    k("create", "-f", "-", stdin=f"{POD}---\n{JOB}---\n{DEPLOYMENT}---\n{CLAIM}---\n{CONFIG_MAP}")
    k("create", "service", "clusterip", "web", "--tcp=80:8080")
    uid = k("get", "pod", "p1", "-o", "jsonpath={.metadata.uid}")
    event = {
        "metadata": {"name": "p1.1"},
        "involvedObject": {"kind": "Pod", "namespace": k.namespace, "name": "p1", "uid": uid, "apiVersion": "v1"},
        "reason": "Tested",
        "message": "seen by describe",
        "type": "Normal",
        "source": {"component": "tester"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
    }
    assert server.admin.post(f"/api/v1/namespaces/{k.namespace}/events", event).status == 201
    description = k("describe", "pod", "p1")
    assert re.search(r"Name:\s+p1\n", description)
    assert re.search(r"Image:\s+busybox:1.36\n", description)
    assert re.search(r"Normal\s+Tested\s+.*tester\s+seen by describe", description)
    assert re.search(r"Parallelism:\s+1\n", k("describe", "job", "train"))
    assert re.search(r"Replicas:\s+2 desired", k("describe", "deployment", "web"))
    assert re.search(r"Used By:\s+<none>", k("describe", "pvc", "data"))
    assert re.search(r"Port:\s+80-8080\s+80/TCP", k("describe", "service", "web"))
    assert re.search(r"Status:\s+Active", k("describe", "ns", k.namespace))
    assert "color:" in k("describe", "cm", "settings")


def test_events(k: Kubectl, server: Server) -> None:
    for name, kind in (("one", "Pod"), ("two", "Job")):
        body = {
            "metadata": {"name": name},
            "involvedObject": {"kind": kind, "namespace": k.namespace, "name": "x", "apiVersion": "v1"},
            "reason": f"Reason{name.title()}",
            "message": "m",
            "type": "Normal" if name == "one" else "Warning",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        assert server.admin.post(f"/api/v1/namespaces/{k.namespace}/events", body).status == 201
    assert rows(k("get", "events"))[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "ReasonOne" in k("events")
    assert "ReasonTwo" not in k("events", "--for=pod/x")
    assert "ReasonOne" not in k("events", "--types=Warning")
    watching = k.start("events", "-w")
    try:
        assert lines(watching, 1)[0].startswith("LAST SEEN")
        output = "".join(lines(watching, 2))
        assert "ReasonOne" in output
        assert "ReasonTwo" in output
    finally:
        end(watching)


def test_wait(k: Kubectl, server: Server) -> None:
    k("create", "-f", "-", stdin=POD)
    waiting = k.start("wait", "--for=condition=Ready", "pod/p1", "--timeout=30s")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    at = f"/api/v1/namespaces/{k.namespace}/pods/p1"
    assert server.admin.patch(f"{at}/status", status).status == 200
    assert waiting.communicate(timeout=30)[0] == "pod/p1 condition met\n"
    assert k("wait", "--for=jsonpath={.status.phase}=Running", "pod/p1", "--timeout=10s") == "pod/p1 condition met\n"
    late = k.run("wait", "--for=condition=Never", "pod/p1", "--timeout=1s")
    assert (late.returncode, "timed out waiting for the condition" in late.stderr) == (1, True)
    waiting = k.start("wait", "--for=delete", "pod/p1", "--timeout=30s")
    server.admin.delete(at, {"gracePeriodSeconds": 0})
    assert waiting.wait(30) == 0
    waiting.communicate()
    if k.minor >= 31:
        coming = k.start("wait", "--for=create", "pod/p1", "--timeout=30s")
        k("create", "-f", "-", stdin=POD)
        assert coming.communicate(timeout=30)[0] == "pod/p1 condition met\n"


def test_rollout(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=DEPLOYMENT)
    watching = k.start("rollout", "status", "deployment/web", "--timeout=30s")
    status = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
    patch = json.dumps({"status": status})
    k("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", patch)
    assert 'deployment "web" successfully rolled out' in watching.communicate(timeout=30)[0]
    assert k("rollout", "restart", "deployment/web") == "deployment.apps/web restarted\n"
    assert k("rollout", "pause", "deployment/web") == "deployment.apps/web paused\n"
    assert k("rollout", "resume", "deployment/web") == "deployment.apps/web resumed\n"
    assert "restartedAt" in k("get", "deployment", "web", "-o", "yaml")


def test_discovery(k: Kubectl) -> None:
    resources = rows(k("api-resources", "--no-headers"))
    assert ["pods", "po", "v1", "true", "Pod"] in resources
    assert ["jobs", "batch/v1", "true", "Job"] in resources
    assert ["nodes", "no", "v1", "false", "Node"] in resources
    assert "deployments.apps" in k("api-resources", "--categories=all", "-o", "name").split()
    assert {"v1", "apps/v1", "batch/v1", "apiextensions.k8s.io/v1"} <= set(k("api-versions").split())


def test_explain(k: Kubectl) -> None:
    explanation = k("explain", "pod.spec.containers")
    assert re.search(r"KIND:\s+Pod\nVERSION:\s+v1\n", explanation)
    assert re.search(r"imagePullPolicy\s+<string>", explanation)
    assert re.search(r"FIELD:\s+containers <\[\]Container>", explanation)
    assert re.search(r"replicas\s+<integer>", k("explain", "deployment.spec", "--recursive"))
    assert re.search(r"GROUP:\s+batch\n", k("explain", "job"))
    assert 'field "nothing" does not exist' in k.fails("explain", "pod.nothing")


def test_explain_shows_what_the_fields_of_every_object_are(k: Kubectl) -> None:
    """Kubernetes' own tests look for these words."""
    pod, metadata = k("explain", "pod"), k("explain", "pod.metadata")
    assert re.search(
        r"(?s)apiVersion\s+<string>\s+APIVersion defines.*metadata\s+<ObjectMeta>\s+Standard object's", pod
    )
    assert "Standard object's metadata" in metadata
    assert re.search(r"creationTimestamp\s+<string>\s+CreationTimestamp is a timestamp", metadata)


def test_version_and_cluster_info(k: Kubectl) -> None:
    assert re.search(r"Server Version: .*v1\.\d+", k("version"))
    assert "is running at" in k("cluster-info")
    assert json.loads(k("get", "--raw", "/version"))["major"] == "1"
    assert k("get", "--raw", "/readyz") == "ok"
    dump = k("cluster-info", "dump", f"--namespaces={k.namespace}")
    assert '"kind": "DaemonSetList"' in dump


def test_proxy_passes_requests_through(k: Kubectl) -> None:
    proxy = k.start("proxy", "--port=0")
    try:
        first_line = lines(proxy, 1)[0]
        port = re.search(r":(\d+)", first_line)
        assert port is not None, first_line
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/api/v1/namespaces/default", timeout=10) as response:
            assert json.load(response)["metadata"]["name"] == "default"
    finally:
        end(proxy)
