"""Uses the unmodified kubeflow SDK (TrainerClient, Kubernetes backend); prints one word for each step that worked."""

from __future__ import annotations

import logging
import sys
import time

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient
from kubernetes import client as kubernetes


def train() -> None:
    import importlib
    import os

    dist = importlib.import_module("torch.distributed")
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on node {os.environ['PET_NODE_RANK']}", flush=True)
    dist.destroy_process_group()


def fails() -> None:
    print("about to fail", flush=True)
    raise SystemExit("no such dataset")


def waits() -> None:
    import time

    print("waits", flush=True)
    time.sleep(600)


class Warnings(logging.Handler):
    """What the SDK warns of: a version that it cannot read or does not know."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def suspend(namespace: str, name: str, value: bool) -> None:
    kubernetes.CustomObjectsApi().patch_namespaced_custom_object(
        "trainer.kubeflow.org", "v1alpha1", namespace, "trainjobs", name, {"spec": {"suspend": value}}
    )


def until_stopped(client: TrainerClient, name: str) -> None:
    for _ in range(600):
        if not any(step.pod_name for step in client.get_job(name).steps):
            return
        time.sleep(0.1)
    raise AssertionError("the pods of a suspended job stay")


def events_of(client: TrainerClient, name: str) -> list[object]:
    """The recorder writes events a moment after what they tell of."""
    for _ in range(600):
        if events := client.get_job_events(name):
            return list(events)
        time.sleep(0.1)
    raise AssertionError("no events")


def main(namespace: str) -> None:
    warnings = Warnings()
    logging.getLogger("kubeflow").addHandler(warnings)
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
    assert warnings.messages == [], warnings.messages
    print("version")
    runtimes = {runtime.name: runtime for runtime in client.list_runtimes()}
    assert "torch-distributed" in runtimes, runtimes
    runtime = client.get_runtime("torch-distributed")
    assert runtime.trainer.framework == "torch", runtime
    print("runtimes")
    name = client.train(runtime=runtime, trainer=CustomTrainer(func=train, num_nodes=2))
    print("train")
    client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=120, polling_interval=1)
    print("running")
    lines = list(client.get_job_logs(name, step="node-0", follow=True))
    assert any("rank 0 of 2 on node 0" in line for line in lines), lines
    assert any("rank 0 of 2 on node 0" in line for line in client.get_job_logs(name, step="node-0"))
    print("logs")
    job = client.wait_for_job_status(name, status={"Complete"}, timeout=120, polling_interval=1)
    assert [step.name for step in job.steps] == ["node-0", "node-1"], job
    assert job.num_nodes == 2, job
    print("complete")
    assert name in [each.name for each in client.list_jobs()]
    assert client.get_job(name).status == "Complete"
    print("list")
    events_of(client, name)
    print("events")
    client.delete_job(name)
    assert name not in [each.name for each in client.list_jobs()]
    print("delete")
    try:
        client.get_runtime("no-such-runtime")
    except RuntimeError:
        print("refuse")
    client.delete_job(client.train(runtime=runtime, trainer=CustomTrainer(func=fails)))
    resources = {"cpu": 1}  # the SDK sends 1.0
    trainer = CustomTrainer(func=waits, num_nodes=1, resources_per_node=resources)
    name = client.train(trainer=trainer)
    client.wait_for_job_status(name, status={"Running"}, timeout=120, polling_interval=1)
    suspend(namespace, name, True)
    until_stopped(client, name)
    print("suspend")
    suspend(namespace, name, False)
    client.wait_for_job_status(name, status={"Running"}, timeout=120, polling_interval=1)
    client.delete_job(name)
    print("resume")


if __name__ == "__main__":
    main(sys.argv[1])
