"""Write the bootstrap RBAC policy of a real Kubernetes into `access/policy.txt`.

    kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o json | python tools/bootstrap_policy.py

Only objects that the API server itself created (label kubernetes.io/bootstrapping) are written.
`apiserver/access/bootstrap_policy.py` reads the result.
"""

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/torchyard/apiserver/access/policy.txt"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


def main() -> None:
    items = [item for item in json.load(sys.stdin)["items"] if "kubernetes.io/bootstrapping" in labels(item)]
    bindings = [item for item in items if item["kind"].endswith("Binding")]
    lines = ["# Written by tools/bootstrap_policy.py. A role, then its rules: verbs | API groups | resources | names,"]
    lines.append("# or verbs | URLs; then the subjects it is bound to.")
    for item in items:
        if item["kind"].endswith("Binding"):
            continue
        lines += ["", header(item), *(f"  {rule(entry)}" for entry in item.get("rules") or ())]
        lines += [f"  {bound(entry)}" for entry in bindings if refers(entry, item)]
    TARGET.write_text("\n".join(lines) + "\n")


def labels(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def header(role: dict[str, Any]) -> str:
    metadata = role["metadata"]
    words = [role["kind"], *([metadata["namespace"]] if "namespace" in metadata else []), metadata["name"]]
    words += [f"into={key.removeprefix(AGGREGATE)}" for key in labels(role) if key.startswith(AGGREGATE)]
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        words += [f"from={key.removeprefix(AGGREGATE)}" for key in selector["matchLabels"]]
    return " ".join(words)


def rule(policy_rule: dict[str, Any]) -> str:
    parts = [policy_rule["verbs"]]
    if "nonResourceURLs" in policy_rule:
        parts += [policy_rule["nonResourceURLs"]]
    else:
        groups = [group or '""' for group in policy_rule["apiGroups"]]
        parts += [
            groups,
            policy_rule["resources"],
            *([policy_rule["resourceNames"]] if policy_rule.get("resourceNames") else []),
        ]
    return " | ".join(" ".join(part) for part in parts)


def refers(binding: dict[str, Any], role: dict[str, Any]) -> bool:
    ref = binding["roleRef"]
    if (ref["kind"], ref["name"]) != (role["kind"], role["metadata"]["name"]):
        return False
    return role["kind"] == "ClusterRole" or binding["metadata"]["namespace"] == role["metadata"]["namespace"]


def bound(binding: dict[str, Any]) -> str:
    subjects = [
        f"{subject['kind']}={subject['namespace'] + '/' if 'namespace' in subject else ''}{subject['name']}"
        for subject in binding.get("subjects") or ()
    ]
    ref, name = binding["roleRef"]["name"], binding["metadata"]["name"]
    return " ".join(["bound", *([f"as={name}"] if name != ref else []), *subjects])


if __name__ == "__main__":
    main()
