"""What people do with the TrainingClient of kubeflow-training. Arguments: a namespace, what to make a job of."""

from __future__ import annotations

import sys

from kubeflow.training import TrainingClient

NAMESPACE = sys.argv[1]
PATIENCE = {"wait_timeout": 600, "polling_interval": 1}


def done(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def train(parameters: dict[str, str]) -> None:  # its text travels: only built-in names here
    import os

    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    print(f"rank {rank} of {world} learns {parameters['what']}", flush=True)


def from_an_image(client: TrainingClient) -> None:
    client.create_job(name="image", base_image="hello-world", num_workers=1, labels={"made": "here"})
    done("create")
    client.wait_for_job_conditions("image", **PATIENCE)
    assert client.is_job_succeeded("image")
    assert client.is_job_created("image")
    assert not client.is_job_failed("image")
    assert not client.is_job_running("image")
    assert not client.is_job_restarting("image")
    done("wait")
    assert client.get_job_pod_names("image") == ["image-master-0"]
    logs, _ = client.get_job_logs("image")
    assert "Hello from" in logs["image-master-0"], logs
    done("logs")
    assert [job.metadata.name for job in client.list_jobs()] == ["image"]
    assert len(client.get_job_conditions("image")) >= 2
    done("list")
    job = client.get_job("image")
    job.metadata.labels["changed"] = "yes"
    client.update_job(job, "image")
    assert client.get_job("image").metadata.labels["changed"] == "yes"
    done("update")
    client.delete_job("image")
    while client.list_jobs():
        pass
    done("delete")
    refused(client)


def refused(client: TrainingClient) -> None:
    try:
        client.create_job(name="0-bad", base_image="hello-world", num_workers=1)
    except RuntimeError as error:
        assert str(error).startswith(f"Failed to create PyTorchJob: {NAMESPACE}/0-bad"), error
        done("refuse")


def from_a_function(client: TrainingClient) -> None:
    client.create_job(
        name="function", train_func=train, parameters={"what": "digits"}, num_workers=3, num_procs_per_worker=1,
        resources_per_worker={"cpu": "100m", "memory": "2Gi"},
    )  # fmt: skip
    done("create")
    names: list[str] = []
    while len(names) < 3:
        names = client.get_job_pod_names("function")
    assert "function-worker-0" in names
    client.wait_for_job_conditions("function", expected_conditions={"Running", "Succeeded"}, **PATIENCE)
    followed, _ = client.get_job_logs("function", follow=True)
    client.wait_for_job_conditions("function", **PATIENCE)
    done("wait")
    logs, _ = client.get_job_logs("function", is_master=False)
    said = "".join(logs.values()) + str(followed)
    for rank in range(3):
        assert f"rank {rank} of 3 learns digits" in said, logs
    done("logs")
    client.delete_job("function")
    done("delete")


{"image": from_an_image, "function": from_a_function}[sys.argv[2]](
    TrainingClient(namespace=NAMESPACE, job_kind="PyTorchJob")
)
