"""Uses the unmodified kubeflow SDK (TrainerClient, Kubernetes backend); prints one word for each step that worked."""

from __future__ import annotations

import sys
import time

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient


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


def events_of(client: TrainerClient, name: str) -> list[object]:
    """The recorder writes events a moment after what they tell of."""
    for _ in range(600):
        if events := client.get_job_events(name):
            return list(events)
        time.sleep(0.1)
    raise AssertionError("no events")


def main(namespace: str) -> None:
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
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


if __name__ == "__main__":
    main(sys.argv[1])
