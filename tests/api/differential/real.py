"""The verdict of kube-apiserver about a case."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field

from tests.api.differential.ours import NAMESPACE
from tests.api.differential.verdict import Case, Verdict, comparable_message, comparable_object, resource_of
from tests.support.http import Answer, Client

from torchyard.api.objects import Object
from torchyard.api.resources import Resource


@dataclass
class Judgement:
    """The verdict of kube-apiserver, and the object that it stored before the change (empty for a creation)."""

    verdict: Verdict
    stored: Object = field(default_factory=dict)


def path_of(resource: Resource) -> str:
    base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{base}/namespaces/{NAMESPACE}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"


class Judge:
    """A namespace of a kube-apiserver."""

    def __init__(self, client: Client) -> None:
        self.client = client
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        answer = client.post("/api/v1/namespaces", body)
        assert answer.status in (201, 409), answer

    def judge(self, case: Case) -> Judgement:
        """Judge a case without leaving objects behind: creations are dry runs, and objects of updates are deleted."""
        path = path_of(resource_of(case.obj))
        if case.change is None:
            answer = self.client.post(f"{path}?fieldValidation=Strict&dryRun=All", case.obj)
            return Judgement(_verdict(answer))
        answer = self.client.post(path, case.obj)
        assert answer.status == 201, f"the object to change was refused: {answer.message}"
        created: Object = answer.json
        created["metadata"].pop("managedFields", None)
        own = f"{path}/{created['metadata']['name']}"
        try:
            changed = copy.deepcopy(created)
            case.change(changed)
            part = f"/{case.part}" if case.part else ""
            return Judgement(_verdict(self.client.put(f"{own}{part}?dryRun=All", changed)), created)
        finally:
            self.remove(own)

    def remove(self, path: str) -> None:
        self.client.patch(path, {"metadata": {"finalizers": None}})
        self.client.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            # no namespace controller runs here
            self.client.put(f"{path}/finalize", {**self.client.get(path).json, "spec": {}})


def _verdict(answer: Answer) -> Verdict:
    warnings = [re.sub(r'^299 - "(.*)"$', r"\1", line).replace('\\"', '"') for line in answer.warnings]
    if answer.status < 300:
        return Verdict(True, obj=comparable_object(answer.json), warnings=warnings)
    causes = [
        (cause.get("field", ""), cause.get("reason", ""), comparable_message(cause.get("message", "")))
        for cause in answer.causes
    ]
    return Verdict(False, causes, message=f"{answer.status} {answer.message}")
