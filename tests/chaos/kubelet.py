"""A kubelet that the test plays while the control plane is killed: every pod has one result, reported until it is
stored.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.chaos.expected_results import Plan
from tests.support.http import MERGE, Client

from torchyard.api.times import to_rfc3339

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
# Long enough ago that no back-off remains.
ENDED = to_rfc3339(datetime.now(UTC) - timedelta(hours=1))


class Kubelet(threading.Thread):
    def __init__(self, client: Client, plans: dict[str, Plan], rng: Random) -> None:
        super().__init__(daemon=True)
        self.client, self.plans, self.rng = client, plans, rng
        self.stopping = threading.Event()
        self._fates: dict[str, int] = {}
        self._failed: dict[str, int] = defaultdict(int)
        self._told: set[str] = set()
        self._room = 0
        self.fault = ""

    def allow(self, count: int) -> None:
        """Allow this many more pods to end."""
        self._room = count

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._look()
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)  # the server is down
            except Exception as error:
                self.fault = repr(error)
                return
            time.sleep(0.05)

    def _look(self) -> None:
        pods = self.client.once("GET", PODS).json["items"]
        self.rng.shuffle(pods)
        for pod in pods:
            self.plans[_job(pod)].pods[pod["metadata"]["uid"]] = pod["metadata"]["name"]
        for pod in pods:
            ended = pod["status"]["phase"] in ("Succeeded", "Failed")
            if not ended and "deletionTimestamp" not in pod["metadata"] and self._may_end(pod):
                self._end(pod)

    def _may_end(self, pod: Object) -> bool:
        if pod["metadata"]["uid"] not in self._fates:
            if self._room <= 0:
                return False
            self._room -= 1
        return True

    def _end(self, pod: Object) -> None:
        uid, job = pod["metadata"]["uid"], _job(pod)
        if uid not in self._fates:
            plan = self.plans[job]
            fails = self._failed[job] < plan.failures and not pod["metadata"]["name"].startswith(f"{job}-worker-")
            self._failed[job] += fails
            self._fates[uid] = plan.code if fails else 0
        code = self._fates[uid]
        name = pod["spec"]["containers"][0]["name"]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": ENDED}
        container = {"name": name, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        container["state"] = {"terminated": ended}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
        at = f"{PODS}/{pod['metadata']['name']}/status"
        self.client.once("PATCH", at, {"status": status}, headers={"Content-Type": MERGE})


def _job(pod: Object) -> str:
    labels = pod["metadata"]["labels"]
    return str(labels.get("batch.kubernetes.io/job-name") or labels["training.kubeflow.org/job-name"])
