"""What a real kube-apiserver says about a case."""

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
    """The real server's verdict, and the object it had stored before the change (none for a creation)."""

    verdict: Verdict
    made: Object = field(default_factory=dict)


def path_of(resource: Resource) -> str:
    base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{base}/namespaces/{NAMESPACE}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"


class Judge:
    """A namespace of a real server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        answer = client.post("/api/v1/namespaces", body)
        assert answer.status in (201, 409), answer

    def judge(self, case: Case) -> Judgement:
        """Nothing stays behind: creations are dry runs, and what is made to be changed is removed again."""
        path = path_of(resource_of(case.obj))
        if case.change is None:
            answer = self.client.post(f"{path}?fieldValidation=Strict&dryRun=All", case.obj)
            return Judgement(_verdict(answer))
        answer = self.client.post(path, case.obj)
        assert answer.status == 201, f"the object to change was refused: {answer.message}"
        made: Object = answer.json
        made["metadata"].pop("managedFields", None)
        own = f"{path}/{made['metadata']['name']}"
        try:
            changed = copy.deepcopy(made)
            case.change(changed)
            part = f"/{case.part}" if case.part else ""
            return Judgement(_verdict(self.client.put(f"{own}{part}?dryRun=All", changed)), made)
        finally:
            self.remove(own)

    def remove(self, path: str) -> None:
        self.client.patch(path, {"metadata": {"finalizers": None}})
        self.client.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            # nobody empties namespaces here
            self.client.put(f"{path}/finalize", {**self.client.get(path).json, "spec": {}})


def _verdict(answer: Answer) -> Verdict:
    warnings = [re.sub(r'^299 - "(.*)"$', r"\1", line).replace('\\"', '"') for line in answer.warnings]
    if answer.status < 300:
        return Verdict(True, obj=comparable_object(answer.json), warnings=warnings)
    causes = [
        (one.get("field", ""), one.get("reason", ""), comparable_message(one.get("message", "")))
        for one in answer.causes
    ]
    return Verdict(False, causes, said=f"{answer.status} {answer.message}")
