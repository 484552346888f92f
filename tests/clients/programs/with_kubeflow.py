"""What people do with the TrainingClient of kubeflow-training. Arguments: a namespace, what to make a job of."""

from __future__ import annotations

import sys
import time

from kubeflow.training import (
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    KubeflowOrgV1SchedulingPolicy,
    TrainingClient,
)
from kubernetes import client as k8s

NAMESPACE = sys.argv[1]
PATIENCE = {"wait_timeout": 600, "polling_interval": 1}


def report(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def train(parameters: dict[str, str]) -> None:  # its text travels: only built-in names here
    import os

    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    print(f"rank {rank} of {world} learns {parameters['what']}", flush=True)


def deleted(client: TrainingClient, *names: str, **options: object) -> None:
    for name in names:
        client.delete_job(name, **options)
    while client.list_jobs():
        time.sleep(0.2)


def from_an_image(client: TrainingClient) -> None:
    client.create_job(name="image", base_image="hello-world", num_workers=1, labels={"made": "here"})
    report("create")
    client.wait_for_job_conditions("image", **PATIENCE)
    assert client.is_job_succeeded("image")
    assert client.is_job_created("image")
    assert not client.is_job_failed("image")
    assert not client.is_job_running("image")
    assert not client.is_job_restarting("image")
    report("wait")
    assert client.get_job_pod_names("image") == ["image-master-0"]
    logs, _ = client.get_job_logs("image")
    assert "Hello from" in logs["image-master-0"], logs
    report("logs")
    assert [job.metadata.name for job in client.list_jobs()] == ["image"]
    assert len(client.get_job_conditions("image")) >= 2
    report("list")
    job = client.get_job("image")
    job.metadata.labels["changed"] = "yes"
    client.update_job(job, "image")
    assert client.get_job("image").metadata.labels["changed"] == "yes"
    report("update")
    deleted(client, "image")
    report("delete")
    check_invalid_job(client)


def check_invalid_job(client: TrainingClient) -> None:
    try:
        client.create_job(name="0-bad", base_image="hello-world", num_workers=1)
    except RuntimeError as error:
        assert str(error).startswith(f"Failed to create PyTorchJob: {NAMESPACE}/0-bad"), error
        report("refuse")


def from_a_function(client: TrainingClient) -> None:
    client.create_job(
        name="function", train_func=train, parameters={"what": "digits"}, num_workers=3, num_procs_per_worker=1,
        resources_per_worker={"cpu": "100m", "memory": "2Gi"},
    )  # fmt: skip
    report("create")
    names: list[str] = []
    while len(names) < 3:
        names = client.get_job_pod_names("function")
    assert "function-worker-0" in names
    client.wait_for_job_conditions("function", expected_conditions={"Running", "Succeeded"}, **PATIENCE)
    followed, _ = client.get_job_logs("function", follow=True)
    client.wait_for_job_conditions("function", **PATIENCE)
    report("wait")
    logs, _ = client.get_job_logs("function", is_master=False)
    output = "".join(logs.values()) + str(followed)
    for rank in range(3):
        assert f"rank {rank} of 3 learns digits" in output, logs
    report("logs")
    client.delete_job("function")
    report("delete")


def mnist(name: str, **policy: object) -> KubeflowOrgV1PyTorchJob:
    """A master and a worker on a few images, built as the SDK's own notebook and tests build it."""
    container = k8s.V1Container(
        name="pytorch", image="kubeflow/pytorch-dist-mnist-test:1.0",
        args=["--backend", "gloo", "--no-cuda", "--limit", "640"],
    )  # fmt: skip
    template = k8s.V1PodTemplateSpec(spec=k8s.V1PodSpec(containers=[container]))
    replica = KubeflowOrgV1ReplicaSpec(replicas=1, restart_policy="OnFailure", template=template)
    spec = KubeflowOrgV1PyTorchJobSpec(
        run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None", **policy),
        pytorch_replica_specs={"Master": replica, "Worker": replica},
    )
    metadata = k8s.V1ObjectMeta(name=name, namespace=NAMESPACE)
    return KubeflowOrgV1PyTorchJob(api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=metadata, spec=spec)


def full_lifecycle(client: TrainingClient) -> None:
    client.create_job(mnist("mnist"))
    report("create")
    client.wait_for_job_conditions("mnist", **PATIENCE)
    assert client.is_job_created("mnist")
    assert client.is_job_succeeded("mnist")
    for is_in_state in (client.is_job_running, client.is_job_restarting, client.is_job_failed):
        assert not is_in_state("mnist"), is_in_state
    assert len(client.get_job_conditions("mnist")) >= 2
    report("wait")
    assert client.get_job("mnist").status.replica_statuses["Master"].succeeded == 1
    assert sorted(client.get_job_pod_names("mnist")) == ["mnist-master-0", "mnist-worker-0"]
    assert client.get_job_pod_names("mnist", is_master=True) == ["mnist-master-0"]
    logs, events = client.get_job_logs("mnist", verbose=True)
    assert "accuracy=" in logs["mnist-master-0"], logs
    assert any("Created pod: mnist-worker-0" in line for lines in events.values() for line in lines), events
    report("logs")
    deleted(client, "mnist", delete_options=k8s.V1DeleteOptions(propagation_policy="Foreground"))
    report("delete")


def all_unschedulable(client: TrainingClient, name: str) -> bool:
    """Whether the scheduler has rejected every pod of the job."""
    pods = client.get_job_pods(name)
    return bool(pods) and all(
        any(
            condition.type == "PodScheduled" and condition.status == "False"
            for condition in pod.status.conditions or ()
        )
        for pod in pods
    )


def gang(client: TrainingClient) -> None:
    client.create_job(mnist("gang", scheduling_policy=KubeflowOrgV1SchedulingPolicy(min_available=10)))
    client.wait_for_job_conditions("gang", expected_conditions={"Created"}, **PATIENCE)
    while not all_unschedulable(client, "gang"):
        time.sleep(0.2)
    assert client.is_job_created("gang")
    assert not client.is_job_running("gang")
    report("wait")
    job = client.get_job("gang")
    job.spec.run_policy.scheduling_policy.min_available = 2
    client.update_job(job, "gang")
    report("update")
    client.wait_for_job_conditions("gang", **PATIENCE)
    deleted(client, "gang")
    report("succeed")


def managers(client: TrainingClient) -> None:
    client.create_job(mnist("here", managed_by="kubeflow.org/training-operator"))
    client.create_job(mnist("there", managed_by="kueue.x-k8s.io/multikueue"))
    try:
        client.create_job(mnist("nowhere", managed_by="invalid"))
    except RuntimeError as error:
        assert str(error).startswith(f"Failed to create PyTorchJob: {NAMESPACE}/nowhere"), error
        report("refuse")
    assert sorted(job.metadata.name for job in client.list_jobs()) == ["here", "there"]
    client.wait_for_job_conditions("here", **PATIENCE)
    assert not client.get_job("there").status
    assert client.get_job_pod_names("there") == []
    deleted(client, "here", "there")
    report("two")


PARTS = {
    "image": from_an_image,
    "function": from_a_function,
    "whole": full_lifecycle,
    "gang": gang,
    "managers": managers,
}
PARTS[sys.argv[2]](TrainingClient(namespace=NAMESPACE, job_kind="PyTorchJob"))
