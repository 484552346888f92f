"""The pods and services of a job: names, labels, environment, the wait for the master, restart policy."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.pytorchjobs import NOW, job, replica

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.defaults import with_defaults
from torchyard.core.pytorchjob.environment import elastic_environment
from torchyard.core.pytorchjob.replicas import make_pod, make_service, owner_reference
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView
from torchyard.core.training.elastic import make_token_secret

M, W = names.MASTER, names.WORKER


def view(**fields: Any) -> PyTorchJobView:
    return PyTorchJobView.of(job(**fields), NOW)


def variables(pod: Object, container: int = 0) -> dict[str, str]:
    return {item["name"]: item["value"] for item in pod["spec"]["containers"][container]["env"] if "value" in item}


def pod_for(slot: tuple[str, int], settings: PyTorchJobSettings | None = None, **fields: Any) -> Object:
    return make_pod(view(**fields), slot, settings or PyTorchJobSettings())


def test_a_master_and_workers_get_names_labels_owner_and_addresses() -> None:
    """Row T1."""
    ports = {"ports": [{"name": names.PORT_NAME, "containerPort": 8080}]}
    replicas: Object = {"master": replica(1, container=ports), "worker": replica(2, container=ports)}
    pod = pod_for((W, 1), **replicas)
    assert pod["metadata"]["name"] == "train-worker-1"
    labels = pod["metadata"]["labels"]
    assert labels[names.JOB_NAME] == labels["job-name"] == labels["pytorch-job-name"] == "train"
    assert labels[names.REPLICA_TYPE] == labels["replica-type"] == labels["pytorch-replica-type"] == "worker"
    assert labels[names.REPLICA_INDEX] == labels["replica-index"] == "1"
    assert names.JOB_ROLE not in labels
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "PyTorchJob",
        "train",
        True,
        True,
    )
    env = variables(pod)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["RANK"], env["WORLD_SIZE"]) == (
        "train-master-0",
        "8080",
        "2",
        "3",
    )
    assert (env["PET_NPROC_PER_NODE"], env["PET_NNODES"], env["PET_NODE_RANK"]) == ("auto", "3", "2")
    assert pod["spec"]["containers"][0]["ports"] == ports["ports"]
    service = make_service(view(**replicas), (W, 1))
    assert service["metadata"]["name"] == "train-worker-1"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [{"name": names.PORT_NAME, "port": 8080, "targetPort": 8080}]
    assert service["spec"]["selector"] == names.selector_labels("train", W, 1)
    assert service["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]


def test_the_environment_comes_in_upstreams_order_after_the_users_own() -> None:
    own = {"env": [{"name": "MINE", "value": "x"}, {"name": "RANK", "value": "9"}]}
    pod = pod_for((M, 0), master=replica(1, container=own))
    assert [container["name"] for container in pod["spec"]["containers"][0]["env"]] == [
        "MINE",
        "RANK",
        "PYTHONUNBUFFERED",
        "MASTER_PORT",
        "PET_MASTER_PORT",
        "MASTER_ADDR",
        "PET_MASTER_ADDR",
        "WORLD_SIZE",
        "RANK",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_NNODES",
    ]
    assert variables(pod)["RANK"] == "0"


def test_every_container_gets_the_environment_and_init_containers_do_not() -> None:
    both = {"containers": [{"name": "pytorch", "image": "i"}, {"name": "side", "image": "i"}]}
    spec = {**both, "initContainers": [{"name": "mine", "image": "i"}]}
    pod = pod_for((W, 0), worker=replica(1, spec=spec))
    assert variables(pod, 0) == variables(pod, 1)
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["mine", "init-pytorch"]
    assert "env" not in pod["spec"]["initContainers"][0]


@pytest.mark.parametrize(("processes", "world"), [("4", "12"), ("auto", "3"), ("gpu", "3")])
def test_the_world_is_multiplied_by_a_number_of_processes(processes: str, world: str) -> None:
    env = variables(pod_for((M, 0), nprocPerNode=processes))
    assert (env["WORLD_SIZE"], env["PET_NPROC_PER_NODE"]) == (world, processes)


def test_a_worker_only_job_gets_no_master_address_by_default() -> None:
    assert list(variables(pod_for((W, 1), master=None))) == ["PYTHONUNBUFFERED", "PET_NPROC_PER_NODE", "PET_NNODES"]
    env = variables(pod_for((W, 1), master=None, annotations={names.WORKER_RANKS: "true"}))
    assert (env["MASTER_ADDR"], env["RANK"], env["WORLD_SIZE"]) == ("train-worker-0", "1", "2")


def test_an_elastic_job_gets_torchruns_rendezvous_variables() -> None:
    """Row U1."""
    assert elastic_environment(view()) == []
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvHost": "h",
        "rdzvPort": 99,
        "rdzvId": "id",
        "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
        "maxRestarts": 5,
        "nProcPerNode": 4,
        "standalone": True,
    }
    assert elastic_environment(view(master=None, elasticPolicy=policy)) == [
        ("PET_RDZV_ENDPOINT", "h:99"),
        ("PET_RDZV_BACKEND", "etcd"),
        ("PET_NNODES", "1:3"),
        ("PET_MAX_RESTARTS", "5"),
        ("PET_NPROC_PER_NODE", "4"),
        ("PET_RDZV_ID", "id"),
        ("PET_RDZV_CONF", "a=1,b=2"),
        ("PET_STANDALONE", ""),
    ]


def test_the_elastic_runtime_gets_its_coordinators_address_and_the_first_worker_serves_it() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "torchyard", "rdzvPort": 29400}
    first, second = (variables(pod_for((W, index), master=None, elasticPolicy=policy)) for index in (0, 1))
    for index, env in enumerate((first, second)):
        assert env["TORCHYARD_ELASTIC_COORDINATOR"] == "train-worker-0:29400"
        assert env["TORCHYARD_ELASTIC_WORKER"] == f"train-worker-{index}"
        assert not [name for name in env if name.startswith("PET_RDZV")]
    assert (first["TORCHYARD_ELASTIC_SERVE"], first["TORCHYARD_ELASTIC_WORLD"]) == ("29400", "1:2:4")
    assert "TORCHYARD_ELASTIC_SERVE" not in second


def test_prometheus_finds_the_coordinator_of_the_elastic_runtime_and_no_other_replica() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "torchyard", "rdzvPort": 29400}
    pods = [pod_for((W, index), master=None, elasticPolicy=policy) for index in (0, 1)]
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": "29400", "prometheus.io/path": "/metrics"}
    assert [pod["metadata"]["annotations"] for pod in pods] == [scrape, {}]
    assert pods[0]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    for other in ({**policy, "rdzvHost": "elsewhere"}, {**policy, "rdzvBackend": "c10d"}):
        assert pod_for((W, 0), master=None, elasticPolicy=other)["metadata"]["annotations"] == {}


def test_the_token_of_the_elastic_runtime_is_in_a_secret() -> None:
    """The uid of a job is no secret: everybody who may read the job or its pods knows it."""
    policy = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "torchyard"}
    pod = pod_for((W, 0), master=None, elasticPolicy=policy)
    (token,) = (env for env in pod["spec"]["containers"][0]["env"] if env["name"] == "TORCHYARD_ELASTIC_TOKEN")
    train_job = view(master=None, elasticPolicy=policy).job
    secret = make_token_secret(train_job, owner_reference(train_job), "s3cret")
    assert token["valueFrom"]["secretKeyRef"] == {"name": secret["metadata"]["name"], "key": "token"}
    assert secret["stringData"] == {"token": "s3cret"}
    assert secret["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert not [env for env in pod_for((W, 0), master=None)["spec"]["containers"][0]["env"] if "TOKEN" in env["name"]]


@pytest.mark.parametrize(
    ("fields", "slot", "count"),
    [({"master": None}, (W, 0), 0), ({}, (W, 0), 1), ({}, (M, 0), 0)],
    ids=["worker alone", "worker with master", "master"],
)
def test_only_workers_of_a_job_with_a_master_wait_for_it(fields: Object, slot: tuple[str, int], count: int) -> None:
    """Row U2."""
    assert len(pod_for(slot, **fields)["spec"].get("initContainers", [])) == count


def test_the_wait_can_be_switched_off_and_its_image_and_tries_set() -> None:
    off = pod_for((W, 0), annotations={names.INIT_CONTAINER: "off"})
    assert "initContainers" not in off["spec"]
    settings = PyTorchJobSettings(init_image="mirror/alpine:1", init_tries=7)
    waiting = pod_for((W, 0), settings)["spec"]["initContainers"][0]
    assert waiting["image"] == "mirror/alpine:1"
    assert "seq 7" in waiting["command"][2]
    assert "nslookup train-master-0" in waiting["command"][2]
    assert waiting["resources"] == {
        "limits": {"cpu": "100m", "memory": "20Mi"},
        "requests": {"cpu": "50m", "memory": "10Mi"},
    }


@pytest.mark.parametrize(
    ("elastic_policy", "expected"),
    [
        ({}, (4, 4)),
        ({"minReplicas": 2}, (2, 2)),
        ({"maxReplicas": 6}, (6, 6)),
        ({"minReplicas": 2, "maxReplicas": 6}, (2, 6)),
    ],
)
def test_elastic_limits_default_to_each_other_and_to_the_workers(
    elastic_policy: Object, expected: tuple[int, int]
) -> None:
    """Row U3."""
    policy = with_defaults(job(master=None, worker=4, elasticPolicy=elastic_policy))["spec"]["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"], policy["rdzvBackend"]) == (*expected, "c10d")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, "auto"), ({"elasticPolicy": {}}, "auto"), ({"elasticPolicy": {"nProcPerNode": 2}}, None)],
)
def test_processes_default_to_auto(fields: Object, expected: str | None) -> None:
    """Row U4."""
    assert with_defaults(job(**fields))["spec"].get("nprocPerNode") == expected


def test_defaults_leave_the_given_object_as_it_was() -> None:
    manifest = job(worker=replica(None))
    before = str(manifest)
    read = with_defaults(manifest)
    assert str(manifest) == before
    worker = read["spec"]["pytorchReplicaSpecs"][W]
    assert (worker["replicas"], worker["restartPolicy"]) == (1, "OnFailure")
    assert read["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Always", "Always"), ("OnFailure", "OnFailure"), ("Never", "Never"), ("ExitCode", "Never")],
)
def test_the_pods_restart_policy_follows_the_replicas(policy: str, expected: str) -> None:
    """Row U11."""
    pod = pod_for((M, 0), master=replica(1, policy=policy, spec={"restartPolicy": "Always"}))
    assert pod["spec"]["restartPolicy"] == expected
    whole = pod_for((M, 0), master=replica(1, policy=policy), annotations={names.RESTART_SCOPE: names.WHOLE_JOB})
    assert whole["spec"]["restartPolicy"] == "Never"


def test_template_labels_and_annotations_are_copied_and_ours_win() -> None:
    """Row C1."""
    metadata = {"labels": {"team": "a", names.JOB_NAME: "lie"}, "annotations": {"x": "y"}, "finalizers": ["a/b"]}
    pod = pod_for((M, 0), master=replica(1, metadata=metadata))
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"][names.JOB_NAME] == "train"
    assert pod["metadata"]["annotations"] == {"x": "y"}
    assert pod["metadata"]["finalizers"] == ["a/b"]


def test_the_first_worker_has_the_masters_role_where_there_is_no_master() -> None:
    roles = [pod_for((W, index), master=None)["metadata"]["labels"].get(names.JOB_ROLE) for index in (0, 1)]
    assert roles == ["master", None]


def test_a_service_names_ports_that_have_no_name() -> None:
    ports = {"ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]}
    service = make_service(view(master=replica(1, container=ports)), (M, 0))
    assert service["spec"]["ports"] == [
        {"name": "port-80", "port": 80, "targetPort": 80},
        {"name": "port-81", "port": 81, "targetPort": 81, "protocol": "UDP"},
        {"name": names.PORT_NAME, "port": 23456, "targetPort": 23456},
    ]
