"""Call the SDK's `train()` again and again; print for each call when it returned, when its pods existed, when all ran.

Runs in an environment with `kubeflow`; arguments: nodes, calls.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from kubeflow.trainer import CustomTrainer, TrainerClient
from kubernetes import client as kubernetes
from kubernetes import config


def train() -> None:
    import time

    time.sleep(600)


class PodWatch:
    """The times at which the pods of the namespace were first seen, and first seen Running; as a stream of bytes."""

    def __init__(self) -> None:
        self._api = kubernetes.ApiClient()
        self._changed = threading.Condition()
        self._created: dict[str, float] = {}
        self._running: dict[str, float] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        answer = self._api.call_api(
            "/api/v1/namespaces/default/pods",
            "GET",
            query_params=[("watch", "true")],
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
        )
        rest = b""
        for chunk in answer.stream(65536):
            now = time.perf_counter()
            *lines, rest = (rest + chunk).split(b"\n")
            with self._changed:
                for line in lines:
                    self._note(json.loads(line), now)
                self._changed.notify_all()

    def _note(self, event: dict[str, object], now: float) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        if event["type"] == "DELETED":
            self._created.pop(name, None)
            self._running.pop(name, None)
            return
        self._created.setdefault(name, now)
        if pod["status"].get("phase") == "Running":
            self._running.setdefault(name, now)

    def until(self, count: int) -> tuple[float, float]:
        """When so many pods existed, and when so many ran."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._running) >= count, timeout=60), self._running
            return max(self._created.values()), max(self._running.values())

    def are_gone(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._created, timeout=0.5)


def main(nodes: int, calls: int) -> None:
    config.load_kube_config()
    client, pods, core = TrainerClient(), PodWatch(), kubernetes.CoreV1Api()
    for _ in range(calls):
        begun = time.perf_counter()
        name = client.train(trainer=CustomTrainer(func=train, num_nodes=nodes))
        returned = time.perf_counter() - begun
        created, running = pods.until(nodes)
        print(f"{returned} {created - begun} {running - begun}", flush=True)
        client.delete_job(name)
        # bash waits for torchrun, so the pods would end after their grace period.
        while not pods.are_gone():
            core.delete_collection_namespaced_pod("default", grace_period_seconds=0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
