"""What kubectl writes: create, apply, diff, replace, edit, patch, label, set, scale, delete."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.clients.manifests import CONFIG_MAP, DEPLOYMENT, JOB, POD
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server
from tests.support.waiting import eventually


def jsonpath(k: Kubectl, resource: str, path: str) -> str:
    return k("get", resource, "-o", f"jsonpath={{{path}}}")


def test_create_from_a_file(k: Kubectl) -> None:
    assert k("create", "-f", "-", stdin=POD) == "pod/p1 created\n"
    assert 'pods "p1" already exists' in k.fails("create", "-f", "-", stdin=POD)
    named = k("create", "-f", "-", stdin=POD.replace("name: p1", "generateName: p-"))
    assert named.startswith("pod/p-")
    assert len(named.split()[0]) == len("pod/p-") + 5


def test_create_dry_runs_write_nothing(k: Kubectl) -> None:
    assert k("create", "-f", "-", "--dry-run=server", stdin=POD) == "pod/p1 created (server dry run)\n"
    assert k("create", "-f", "-", "--dry-run=client", stdin=POD) == "pod/p1 created (dry run)\n"
    assert k("get", "pods", "-o", "name") == ""


def test_unknown_fields_are_rejected_unless_validation_is_off(k: Kubectl) -> None:
    wrong = POD.replace("image: busybox:1.36", "image: busybox:1.36\n      imagePolicy: Never")
    complaint = k.fails("create", "-f", "-", stdin=wrong)
    assert 'strict decoding error: unknown field "spec.containers[0].imagePolicy"' in complaint
    warned = k.run("create", "-f", "-", "--validate=warn", "--dry-run=server", stdin=wrong)
    assert (warned.returncode, 'Warning: unknown field "spec.containers[0].imagePolicy"' in warned.stderr) == (0, True)
    assert k("create", "-f", "-", "--validate=false", stdin=wrong) == "pod/p1 created\n"


def test_an_invalid_object_is_explained(k: Kubectl) -> None:
    complaint = k.fails("create", "-f", "-", stdin=POD.replace("name: main", "name: Main"))
    assert complaint.startswith('The Pod "p1" is invalid: spec.containers[0].name: Invalid value: "Main": ')


def test_apply_creates_then_patches_then_changes_nothing(k: Kubectl) -> None:
    assert k("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
    assert k("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web unchanged\n"
    more = DEPLOYMENT.replace("replicas: 2", "replicas: 3").replace("busybox:1.36", "busybox:1.37")
    assert k("apply", "-f", "-", stdin=more) == "deployment.apps/web configured\n"
    assert jsonpath(k, "deployment/web", ".spec.replicas") == "3"
    less = more.replace("  replicas: 3\n", "")
    assert k("apply", "-f", "-", stdin=less) == "deployment.apps/web configured\n"
    assert jsonpath(k, "deployment/web", ".spec.replicas") == "1"
    pruned = CONFIG_MAP.replace("  color: red\n", "")
    k("apply", "-f", "-", stdin=CONFIG_MAP)
    k("apply", "-f", "-", stdin=pruned)
    assert json.loads(k("get", "configmap", "settings", "-o", "json"))["data"] == {"size": "3"}
    assert "color: red" not in k("apply", "view-last-applied", "configmap/settings")


def test_apply_many_objects_at_once(k: Kubectl) -> None:
    output = k("apply", "-f", "-", stdin=f"{CONFIG_MAP}---\n{JOB}---\n{DEPLOYMENT}")
    assert output.splitlines() == [
        "configmap/settings created",
        "job.batch/train created",
        "deployment.apps/web created",
    ]


def test_apply_on_the_server_conflicts_and_forces(k: Kubectl) -> None:
    side = ("apply", "--server-side", "-f", "-")
    assert k(*side, stdin=DEPLOYMENT) == "deployment.apps/web serverside-applied\n"
    more = DEPLOYMENT.replace("replicas: 2", "replicas: 5")
    complaint = k.fails(*side, "--field-manager=other", stdin=more)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas' in complaint
    k(*side, "--field-manager=other", "--force-conflicts", stdin=more)
    assert jsonpath(k, "deployment/web", ".spec.replicas") == "5"
    k("create", "-f", "-", stdin=CONFIG_MAP)
    k("apply", "-f", "-", stdin=CONFIG_MAP.replace("red", "blue"))
    assert k(*side, "--force-conflicts", stdin=CONFIG_MAP) == "configmap/settings serverside-applied\n"
    assert jsonpath(k, "configmap/settings", ".data.color") == "red"


def test_diff_shows_what_apply_would_change(k: Kubectl) -> None:
    k("apply", "-f", "-", stdin=DEPLOYMENT)
    assert k("diff", "-f", "-", stdin=DEPLOYMENT) == ""
    differs = k.run("diff", "-f", "-", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: 7"))
    assert differs.returncode == 1, differs.stderr
    assert "-  replicas: 2" in differs.stdout
    assert "+  replicas: 7" in differs.stdout


def test_replace_overwrites(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=CONFIG_MAP)
    output = k("replace", "-f", "-", stdin=CONFIG_MAP.replace("  color: red\n", "  shape: round\n"))
    assert output == "configmap/settings replaced\n"
    assert json.loads(k("get", "cm/settings", "-o", "json"))["data"] == {"shape": "round", "size": "3"}
    missing = k.fails("replace", "-f", "-", stdin=CONFIG_MAP.replace("settings", "nobody"))
    assert 'configmaps "nobody" not found' in missing
    assert k("replace", "--force", "-f", "-", stdin=CONFIG_MAP).splitlines()[-1] == "configmap/settings replaced"


def test_edit_sends_what_the_editor_changed(k: Kubectl, tmp_path: Path) -> None:
    k("create", "-f", "-", stdin=CONFIG_MAP)
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('red', 'green'))\n"
    )
    editor.chmod(0o755)
    editing = replace(k, environment=k.environment | {"KUBE_EDITOR": str(editor)})
    assert editing("edit", "configmap", "settings") == "configmap/settings edited\n"
    assert jsonpath(k, "configmap/settings", ".data.color") == "green"


def test_patch_of_every_type(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=DEPLOYMENT)
    strategic = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"alpine:3"}]}}}}'
    assert k("patch", "deployment", "web", "-p", strategic) == "deployment.apps/web patched\n"
    assert set(jsonpath(k, "deployment/web", ".spec.template.spec.containers[*].name").split()) == {"main", "side"}
    assert k("patch", "deployment", "web", "-p", strategic) == "deployment.apps/web patched (no change)\n"
    k("patch", "deployment", "web", "--type", "merge", "-p", '{"spec":{"replicas":4}}')
    k("patch", "deployment", "web", "--type", "json", "-p", '[{"op":"replace","path":"/spec/paused","value":true}]')
    assert jsonpath(k, "deployment/web", ".spec.replicas") == "4"
    assert jsonpath(k, "deployment/web", ".spec.paused") == "true"
    k("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", '{"status":{"replicas":9}}')
    assert k("get", "deployment", "web", "--subresource=status", "-o", "jsonpath={.status.replicas}") == "9"


def test_label_and_annotate(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=CONFIG_MAP)
    assert k("label", "cm", "settings", "a=1", "b=2") == "configmap/settings labeled\n"
    assert "'a' already has a value (1), and --overwrite is false" in k.fails("label", "cm", "settings", "a=9")
    k("label", "cm", "settings", "a=9", "b-", "--overwrite")
    assert json.loads(jsonpath(k, "cm/settings", ".metadata.labels")) == {"a": "9"}
    assert k("annotate", "cm", "settings", "note=a long story").startswith("configmap/settings annotate")
    assert jsonpath(k, "cm/settings", ".metadata.annotations.note") == "a long story"
    assert "a valid label must be" in k.fails("label", "cm", "settings", "a=b c")


def test_set_image_env_and_resources(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=DEPLOYMENT)
    assert k("set", "image", "deployment/web", "main=alpine:3.20") == "deployment.apps/web image updated\n"
    assert k("set", "env", "deployment/web", "MODE=fast") == "deployment.apps/web env updated\n"
    limits = k("set", "resources", "deployment/web", "--limits=cpu=200m,memory=64Mi")
    assert limits == "deployment.apps/web resource requirements updated\n"
    container = json.loads(jsonpath(k, "deployment/web", ".spec.template.spec.containers[0]"))
    assert (container["image"], container["env"]) == ("alpine:3.20", [{"name": "MODE", "value": "fast"}])
    assert container["resources"]["limits"] == {"cpu": "200m", "memory": "64Mi"}
    assert "MODE=fast" in k("set", "env", "deployment/web", "--list")


def test_scale(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=DEPLOYMENT)
    assert k("scale", "deployment/web", "--replicas=7") == "deployment.apps/web scaled\n"
    assert jsonpath(k, "deployment/web", ".spec.replicas") == "7"
    error_output = k.fails("scale", "deployment/web", "--replicas=1", "--current-replicas=3")
    assert "Expected replicas to be 3, was 7" in error_output
    output = k("autoscale", "deployment", "web", "--min=1", "--max=5", "--cpu-percent=80")
    assert output == "horizontalpodautoscaler.autoscaling/web autoscaled\n"


def test_delete_by_name_label_field_and_all(k: Kubectl) -> None:
    for name, app in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "two")):
        k("create", "-f", "-", stdin=CONFIG_MAP.replace("settings", f"{name}\n  labels: {{app: {app}}}"))
    assert 'configmap "a" deleted' in k("delete", "configmap", "a")
    assert k("delete", "cm", "-l", "app=one", "-o", "name") == "configmap/b\n"
    assert k("delete", "cm", "--field-selector=metadata.name=c", "-o", "name") == "configmap/c\n"
    assert 'configmaps "nobody" not found' in k.fails("delete", "cm", "nobody")
    assert k("delete", "cm", "nobody", "--ignore-not-found") == ""
    assert "configmap/d\n" in k("delete", "cm", "--all", "-o", "name")


def test_delete_pods_with_and_without_force(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=POD)
    assert '"p1" deleted' in k("delete", "pod", "p1")
    k("create", "-f", "-", stdin=POD)
    forced = k.run("delete", "pod", "p1", "--grace-period=0", "--force")
    assert (forced.returncode, "Immediate deletion does not wait" in forced.stderr) == (0, True)
    k("create", "-f", "-", stdin=POD)
    assert '"p1" deleted' in k("delete", "-f", "-", "--now", stdin=POD)
    assert k("get", "pods", "-o", "name") == ""


def test_delete_waits_for_finalizers(k: Kubectl) -> None:
    k("create", "-f", "-", stdin=CONFIG_MAP.replace("name: settings", "name: settings\n  finalizers: [t.io/hold]"))
    deleting = k.start("delete", "cm", "settings", "--timeout=30s")
    eventually(lambda: jsonpath(k, "cm/settings", ".metadata.deletionTimestamp") != "", "the deletion marked")
    slow = k.run("delete", "cm", "settings", "--timeout=1s")
    assert (slow.returncode, "timed out waiting for the condition" in slow.stderr) == (1, True)
    assert deleting.poll() is None
    assert k("patch", "cm", "settings", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert 'configmap "settings" deleted' in deleting.communicate(timeout=30)[0]
    assert deleting.returncode == 0


def is_deleted(server: Server, at: str) -> bool:
    return server.admin.get(at).status == 404


def test_delete_with_each_cascade(k: Kubectl, server: Server) -> None:
    for cascade in ("background", "foreground", "orphan"):
        k("create", "-f", "-", stdin=CONFIG_MAP)
        uid = jsonpath(k, "cm/settings", ".metadata.uid")
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"child-{cascade}",
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "settings",
                        "uid": uid,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
        }
        k("create", "-f", "-", stdin=json.dumps(child))
        k("delete", "cm", "settings", f"--cascade={cascade}")
        at = f"/api/v1/namespaces/{k.namespace}/configmaps/child-{cascade}"
        if cascade == "orphan":
            assert "ownerReferences" not in server.admin.get(at).json["metadata"]
        else:
            eventually(partial(is_deleted, server, at), f"{cascade} deletion")


def test_delete_a_namespace(k: Kubectl) -> None:
    name = f"{k.namespace}-x"
    k("create", "namespace", name)
    k("create", "configmap", "inside", "-n", name, "--from-literal=a=1")
    assert f'namespace "{name}" deleted' in k("delete", "namespace", name)
    assert f'namespaces "{name}" not found' in k.fails("get", "namespace", name)
