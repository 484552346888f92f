"""TrainJobs and runtimes of which upstream's answers are recorded: chosen ones, and generated ones.

A case creates its runtimes, then its TrainJob. `CASES` maps a case's name to it. Names of objects are the same in every
case; each case has its own namespace. A ClusterTrainingRuntime gets the namespace as a prefix of its name (`RUNTIME`).
"""

from __future__ import annotations

import random
from typing import Any

Object = dict[str, Any]

JOB = "job"
RUNTIME = "$NAMESPACE-runtime"  # replaced by the name of the case's ClusterTrainingRuntime
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
GENERATED = 120


def container(name: str = "node", **fields: Any) -> Object:
    return {"name": name, "image": f"example.com/{name}:1", **fields}


def replicated_job(name: str = "node", ancestor: str = "trainer", *containers: Object, **fields: Any) -> Object:
    pod = {"containers": list(containers) or [container(name)], **fields.pop("pod", {})}
    template: Object = {"spec": {**fields.pop("job", {}), "template": {"spec": pod}}}
    if ancestor:
        template["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": name, "template": template, **fields}


def initializer(kind: str, **fields: Any) -> Object:
    name = f"{kind}-initializer"
    mount = [{"name": "initializer", "mountPath": "/workspace"}]
    volumes = [{"name": "initializer", "persistentVolumeClaim": {"claimName": "data"}}]
    return replicated_job(name, name, container(name, volumeMounts=mount), pod={"volumes": volumes}, **fields)


def runtime(
    *jobs: Object, policy: Object | None = None, metadata: Object | None = None, namespaced: bool = False, **spec: Any
) -> Object:
    template: Object = {"spec": {"replicatedJobs": list(jobs) or [replicated_job()], **spec.pop("jobset", {})}}
    if metadata:
        template["metadata"] = metadata
    body = {"template": template, **spec}
    if policy is not None:
        body["mlPolicy"] = policy
    kind, name = ("TrainingRuntime", "runtime") if namespaced else ("ClusterTrainingRuntime", RUNTIME)
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": body}


TORCH: Object = {"numNodes": 1, "torch": {}}


def job(name: str = JOB, *, namespaced: bool = False, **spec: Any) -> Object:
    reference = {"name": "runtime", "kind": "TrainingRuntime"} if namespaced else {"name": RUNTIME}
    body = {"runtimeRef": reference, **spec}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": body,
    }


def patch(*jobs: Object, manager: str = "example.com/user", metadata: Object | None = None) -> Object:
    template: Object = {"spec": {"replicatedJobs": list(jobs)}} if jobs else {}
    if metadata:
        template["metadata"] = metadata
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


def pods(
    name: str = "node", *, metadata: Object | None = None, job_metadata: Object | None = None, **pod: Any
) -> Object:
    inner: Object = {}
    if pod:
        inner["spec"] = pod
    if metadata:
        inner["metadata"] = metadata
    template: Object = {"spec": {"template": inner}}
    if job_metadata:
        template["metadata"] = job_metadata
    return {"name": name, "template": template}


def case(train_job: Object, *runtimes: Object) -> Object:
    return {"job": train_job, "runtimes": list(runtimes)}


def _limits(**values: str) -> Object:
    return {"limits": {key.replace("_", "-"): value for key, value in values.items()}}


def _torch_cases() -> dict[str, Object]:
    env = [{"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}]
    gpu = {"limits": {"nvidia.com/gpu": "2", "cpu": "8"}}
    sidecar = replicated_job("side", "", container("helper"), container("other"))
    target = {"targets": [{"jobName": "side", "containerNames": ["helper"]}]}
    cases = {
        "torch-without-trainer": case(job(), runtime(policy=TORCH)),
        "torch-empty-trainer": case(job(trainer={}), runtime(policy=TORCH)),
        "torch-nodes": case(job(trainer={"numNodes": 4}), runtime(policy=TORCH)),
        "torch-nodes-of-runtime": case(job(trainer={}), runtime(policy={"numNodes": 3, "torch": {}})),
        "torch-zero-nodes": case(job(trainer={"numNodes": 0}), runtime(policy=TORCH)),
        "torch-negative-nodes": case(job(trainer={"numNodes": -1}), runtime(policy=TORCH)),
        "torch-processes": case(job(trainer={"numNodes": 2, "numProcPerNode": 4}), runtime(policy=TORCH)),
        "torch-zero-processes": case(job(trainer={"numProcPerNode": 0}), runtime(policy=TORCH)),
        "torch-negative-processes": case(job(trainer={"numProcPerNode": -2}), runtime(policy=TORCH)),
        "torch-gpu": case(job(trainer={"resourcesPerNode": gpu}), runtime(policy=TORCH)),
        "torch-gpu-and-processes": case(
            job(trainer={"resourcesPerNode": gpu, "numProcPerNode": 1}), runtime(policy=TORCH)
        ),
        "torch-processes-as-word": case(job(trainer={"numProcPerNode": "gpu"}), runtime(policy=TORCH)),
        "torch-user-env": case(
            job(trainer={"env": [{"name": "B", "value": "job"}, {"name": "C", "value": "job"}]}),
            runtime(replicated_job("node", "trainer", container(env=env)), policy=TORCH),
        ),
        "torch-env-from-field": case(
            job(trainer={"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            runtime(replicated_job("node", "trainer", container(env=env)), policy=TORCH),
        ),
        "torch-runtime-sets-pet": case(
            job(trainer={"numNodes": 2}),
            runtime(
                replicated_job("node", "trainer", container(env=[{"name": "PET_NNODES", "value": "9"}, *env])),
                policy=TORCH,
            ),
        ),
        "torch-reserved-env": case(
            job(trainer={"env": [{"name": "PET_NNODES", "value": "2"}, {"name": "PET_MASTER_ADDR", "value": "x"}]}),
            runtime(policy=TORCH),
        ),
        "torch-command": case(
            job(trainer={"image": "example.com/mine:2", "command": ["torchrun"], "args": ["train.py", "--x"]}),
            runtime(replicated_job("node", "trainer", container(command=["a"], args=["b"])), policy=TORCH),
        ),
        "torch-resources-merge": case(
            job(trainer={"resourcesPerNode": {"limits": {"cpu": "3"}, "requests": {"memory": "1Gi"}}}),
            runtime(
                replicated_job(
                    "node",
                    "trainer",
                    container(resources={"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1"}}),
                ),
                policy=TORCH,
            ),
        ),
        "torch-two-containers": case(
            job(trainer={"numNodes": 2, "image": "example.com/mine:2"}),
            runtime(replicated_job("node", "trainer", container("log"), container()), policy=TORCH),
        ),
        "torch-existing-port": case(
            job(trainer={}),
            runtime(replicated_job("node", "trainer", container(ports=[{"containerPort": 8080}])), policy=TORCH),
        ),
        "torch-same-port": case(
            job(trainer={}),
            runtime(replicated_job("node", "trainer", container(ports=[{"containerPort": 29500}])), policy=TORCH),
        ),
        "torch-env-injection": case(
            job(trainer={"numNodes": 2}),
            runtime(replicated_job(), sidecar, policy={"torch": {"envInjection": target}}),
        ),
        "torch-env-injection-without-trainer": case(
            job(), runtime(replicated_job(), sidecar, policy={"torch": {"envInjection": target}})
        ),
        "torch-env-injection-unknown-job": case(
            job(trainer={}),
            runtime(policy={"torch": {"envInjection": {"targets": [{"jobName": "none", "containerNames": ["x"]}]}}}),
        ),
        "torch-env-injection-unknown-container": case(
            job(trainer={}),
            runtime(
                replicated_job(),
                sidecar,
                policy={"torch": {"envInjection": {"targets": [{"jobName": "side", "containerNames": ["x"]}]}}},
            ),
        ),
        "torch-env-injection-into-node": case(
            job(trainer={}),
            runtime(policy={"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["node"]}]}}}),
        ),
        "torch-subdomain": case(
            job(trainer={"numNodes": 2}), runtime(policy=TORCH, jobset={"network": {"subdomain": "sub"}})
        ),
        "torch-other-job-name": case(
            job(trainer={"numNodes": 2}), runtime(replicated_job("workers", "trainer", container()), policy=TORCH)
        ),
        "torch-parallelism": case(
            job(trainer={}), runtime(replicated_job(job={"parallelism": 3, "completions": 3}), policy=TORCH)
        ),
        "torch-no-policy-nodes": case(job(trainer={}), runtime(policy={"torch": {}})),
        "torch-init-container": case(
            job(trainer={"numNodes": 2, "env": [{"name": "X", "value": "1"}]}),
            runtime(replicated_job(pod={"initContainers": [container("wait")]}), policy=TORCH),
        ),
        "torch-tune": case(
            job(
                trainer={
                    "numNodes": 2,
                    "command": ["tune", "run"],
                    "args": ["dtype=bf16"],
                    "resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}},
                }
            ),
            runtime(policy=TORCH),
        ),
    }
    for number, resources in enumerate(
        [
            {"limits": {"cpu": "4"}},
            {"requests": {"cpu": "3"}, "limits": {"cpu": "6"}},
            {"limits": {"cpu": "500m"}},
            {"limits": {"cpu": "2500m"}},
            {"limits": {"memory": "1Gi"}},
            {"limits": {"cpu": "0"}},
            {"limits": {"amd.com/gpu": "4"}},
            {"limits": {"example.com/gpu-mem": "4", "cpu": "2"}},
            {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
            {"limits": {"nvidia.com/mig-1g.5gb": "1", "cpu": "5"}},
            {"limits": {"google.com/tpu": "4", "cpu": "5"}},
        ]
    ):
        cases[f"torch-auto-{number}"] = case(job(trainer={"resourcesPerNode": resources}), runtime(policy=TORCH))
        cases[f"torch-auto-runtime-{number}"] = case(
            job(trainer={}),
            runtime(replicated_job("node", "trainer", container(resources=resources)), policy=TORCH),
        )
    return cases


def _policy_cases() -> dict[str, Object]:
    launcher = replicated_job("launcher", "", container("launcher"))
    trainer_launcher = replicated_job("launcher", "trainer", container("node"))
    workers = replicated_job("node", "", container("node"))
    mpi = {"numNodes": 2, "mpi": {"numProcPerNode": 2, "mpiImplementation": "OpenMPI"}}
    cases = {
        "plain": case(
            job(trainer={"numNodes": 2, "env": [{"name": "A", "value": "1"}]}), runtime(policy={"numNodes": 1})
        ),
        "plain-without-policy": case(job(trainer={"numNodes": 2}), runtime()),
        "plain-without-policy-or-trainer": case(job(), runtime()),
        "plain-parallelism": case(
            job(), runtime(replicated_job(job={"parallelism": 3, "completions": 5, "backoffLimit": 2}))
        ),
        "jax": case(job(trainer={"numNodes": 3}), runtime(policy={"numNodes": 1, "jax": {}})),
        "jax-without-trainer": case(job(), runtime(policy={"numNodes": 2, "jax": {}})),
        "jax-reserved-env": case(
            job(trainer={"env": [{"name": "JAX_NUM_PROCESSES", "value": "1"}]}), runtime(policy={"jax": {}})
        ),
        "xgboost": case(job(trainer={"numNodes": 3}), runtime(policy={"numNodes": 1, "xgboost": {}})),
        "xgboost-processes": case(
            job(trainer={"numNodes": 3, "numProcPerNode": 4}), runtime(policy={"numNodes": 1, "xgboost": {}})
        ),
        "xgboost-without-trainer": case(job(), runtime(policy={"numNodes": 2, "xgboost": {}})),
        "xgboost-reserved-env": case(
            job(trainer={"env": [{"name": "DMLC_NUM_WORKER", "value": "1"}]}), runtime(policy={"xgboost": {}})
        ),
        "xgboost-gpu": case(
            job(trainer={"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}}),
            runtime(policy={"xgboost": {}}),
        ),
        "mpi": case(job(trainer={"numNodes": 2}), runtime(trainer_launcher, workers, policy=mpi)),
        "mpi-launcher-as-node": case(
            job(trainer={"numNodes": 3, "numProcPerNode": 4}),
            runtime(
                trainer_launcher,
                workers,
                policy={"numNodes": 1, "mpi": {"runLauncherAsNode": True, "sshAuthMountPath": "/home/mpi/.ssh"}},
            ),
        ),
        "mpi-launcher-without-ancestor": case(
            job(trainer={"numNodes": 2}),
            runtime(launcher, replicated_job("node", "trainer", container("node")), policy=mpi),
        ),
        "mpi-without-trainer": case(job(), runtime(trainer_launcher, workers, policy=mpi)),
        "mpi-reserved-env": case(
            job(trainer={"env": [{"name": "OMPI_MCA_plm_rsh_args", "value": "1"}]}),
            runtime(trainer_launcher, workers, policy=mpi),
        ),
        "mpi-one-node": case(
            job(trainer={}), runtime(trainer_launcher, workers, policy={"mpi": {"runLauncherAsNode": True}})
        ),
        "mpi-no-launcher": case(job(trainer={}), runtime(policy=mpi)),
        "two-policies": case(job(), runtime(policy={"torch": {}, "jax": {}})),
        "coscheduling": case(
            job(trainer={"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1", "memory": "1Gi"}}}),
            runtime(policy=TORCH, podGroupPolicy={"coscheduling": {"scheduleTimeoutSeconds": 30}}),
        ),
        "coscheduling-initializers": case(
            job(trainer={"numNodes": 2}, initializer={"dataset": {"storageUri": "file:///data"}}),
            runtime(
                initializer("dataset"),
                replicated_job(
                    "node", "trainer", container(resources={"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})
                ),
                policy=TORCH,
                podGroupPolicy={"coscheduling": {}},
            ),
        ),
        "volcano": case(
            job(trainer={"numNodes": 2}),
            runtime(
                replicated_job(pod={"priorityClassName": "high"}),
                policy=TORCH,
                metadata={"annotations": {"scheduling.volcano.sh/queue-name": "research"}},
                podGroupPolicy={"volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}},
            ),
        ),
        "volcano-plain": case(job(trainer={}), runtime(policy=TORCH, podGroupPolicy={"volcano": {}})),
        "both-pod-group-policies": case(
            job(), runtime(policy=TORCH, podGroupPolicy={"volcano": {}, "coscheduling": {}})
        ),
    }
    for name in ("jax", "xgboost"):
        cases[f"{name}-one-node"] = case(job(trainer={}), runtime(policy={name: {}}))
        cases[f"{name}-other-job-name"] = case(
            job(trainer={"numNodes": 2}), runtime(replicated_job("workers", "trainer", container()), policy={name: {}})
        )
    return cases


def _initializer_cases() -> dict[str, Object]:
    both = {
        "dataset": {"storageUri": "hf://a/b", "env": [{"name": "X", "value": "1"}], "secretRef": {"name": "token"}},
        "model": {"storageUri": "s3://bucket/model"},
    }
    depends: dict[str, Any] = {"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
    pipeline = [initializer("dataset"), initializer("model"), replicated_job(**depends)]
    bare = replicated_job("dataset-initializer", "dataset-initializer", container("dataset-initializer"))
    other = replicated_job("dataset-initializer", "dataset-initializer", container("other"))
    return {
        "initializers": case(job(initializer=both, trainer={"numNodes": 2}), runtime(*pipeline, policy=TORCH)),
        "initializers-unused": case(job(trainer={}), runtime(*pipeline, policy=TORCH)),
        "initializer-without-uri": case(
            job(initializer={"dataset": {"env": [{"name": "X", "value": "1"}]}}), runtime(*pipeline, policy=TORCH)
        ),
        "initializer-not-in-runtime": case(
            job(initializer={"model": {"storageUri": "hf://a/b"}}), runtime(policy=TORCH)
        ),
        "initializer-bad-uri": case(
            job(initializer={"model": {"storageUri": "a/b"}}), runtime(*pipeline, policy=TORCH)
        ),
        "initializer-without-mount": case(
            job(initializer={"dataset": {"storageUri": "hf://a/b"}}), runtime(bare, replicated_job(), policy=TORCH)
        ),
        "initializer-without-container": case(
            job(initializer={"dataset": {"storageUri": "hf://a/b"}}), runtime(other, replicated_job(), policy=TORCH)
        ),
        "initializer-own-name": case(
            job(initializer={"dataset": {"storageUri": "hf://a/b"}}),
            runtime(
                replicated_job(
                    "fetch",
                    "dataset-initializer",
                    container("dataset-initializer", volumeMounts=[{"name": "initializer", "mountPath": "/w"}]),
                    pod={"volumes": [{"name": "initializer", "emptyDir": {}}]},
                ),
                replicated_job(),
                policy=TORCH,
            ),
        ),
        "initializer-replaces-env": case(
            job(initializer={"dataset": {"storageUri": "hf://a/b", "env": [{"name": "K", "value": "job"}]}}),
            runtime(
                replicated_job(
                    "dataset-initializer",
                    "dataset-initializer",
                    container(
                        "dataset-initializer",
                        volumeMounts=[{"name": "initializer", "mountPath": "/w"}],
                        env=[{"name": "STORAGE_URI", "value": "old"}, {"name": "K", "value": "old"}],
                    ),
                    pod={"volumes": [{"name": "initializer", "emptyDir": {}}]},
                ),
                replicated_job(),
                policy=TORCH,
            ),
        ),
    }


def _patch_cases() -> dict[str, Object]:
    toleration = {"key": "a", "operator": "Exists"}
    plain = runtime(
        replicated_job(
            pod={
                "tolerations": [{"key": "old", "operator": "Exists"}],
                "nodeSelector": {"a": "1", "b": "1"},
                "volumes": [{"name": "v", "emptyDir": {}}],
                "initContainers": [container("wait")],
            },
        ),
        replicated_job("side", "", container("helper", env=[{"name": "E", "value": "1"}])),
        policy=TORCH,
        metadata={"labels": {"l": "runtime"}, "annotations": {"n": "runtime"}},
    )
    mount = [{"name": "v", "mountPath": "/data"}]

    def patched(*patches: Object, **spec: Any) -> Object:
        return case(job(runtimePatches=list(patches), trainer={}, **spec), plain)

    return {
        "patch-scheduling": patched(
            patch(pods(nodeSelector={"b": "2", "c": "2"}, tolerations=[toleration], schedulingGates=[{"name": "g"}]))
        ),
        "patch-two-managers": patched(
            patch(pods(nodeSelector={"b": "2"}), manager="example.com/a"),
            patch(pods(nodeSelector={"b": "3", "d": "3"}), manager="example.com/b"),
        ),
        "patch-pod": patched(
            patch(
                pods(
                    serviceAccountName="trainer",
                    imagePullSecrets=[{"name": "pull"}],
                    terminationGracePeriodSeconds=5,
                    securityContext={"runAsUser": 1000},
                    volumes=[{"name": "w", "emptyDir": {"medium": "Memory"}}],
                )
            )
        ),
        "patch-replaces-volume": patched(
            patch(pods(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
        ),
        "patch-containers": patched(
            patch(
                pods(containers=[{"name": "node", "volumeMounts": mount, "securityContext": {"runAsUser": 1}}]),
                pods("side", containers=[{"name": "helper", "env": [{"name": "E", "value": "2"}, {"name": "F"}]}]),
            )
        ),
        "patch-init-container": patched(
            patch(pods(initContainers=[{"name": "wait", "env": [{"name": "W", "value": "1"}], "volumeMounts": mount}]))
        ),
        "patch-affinity": patched(
            patch(
                pods(
                    affinity={
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]
                            }
                        }
                    }
                )
            )
        ),
        "patch-metadata": patched(
            patch(
                pods(metadata={"labels": {"p": "1"}, "annotations": {"q": "1"}}, job_metadata={"labels": {"j": "1"}}),
                metadata={"labels": {"l": "patch", "m": "patch"}, "annotations": {"o": "patch"}},
            )
        ),
        "patch-metadata-only": patched(patch(metadata={"labels": {"m": "patch"}})),
        "patch-empty": patched({"manager": "example.com/user"}),
        "patch-second-job-first": patched(patch(pods("side", nodeSelector={"x": "1"}), pods(nodeSelector={"y": "1"}))),
        "patch-unknown-job": patched(patch(pods("none", nodeSelector={"x": "1"}))),
        "patch-unknown-container": patched(patch(pods(containers=[{"name": "none"}]))),
        "patch-unknown-init-container": patched(patch(pods(initContainers=[{"name": "none"}]))),
        "patch-env-of-node": patched(patch(pods(containers=[{"name": "node", "env": [{"name": "A", "value": "1"}]}]))),
        "patch-bad-manager": patched(patch(manager="user")),
        "patch-bad-manager-path": patched(patch(manager="Example.com/a b")),
        "patch-manager-without-path": patched(patch(manager="example.com/")),
        "patch-duplicate-manager": patched(patch(), patch()),
        "patch-two-errors": patched(patch(pods("none"), pods(containers=[{"name": "none"}]))),
    }


def _object_cases() -> dict[str, Object]:
    deprecated = runtime(policy=TORCH)
    deprecated["metadata"]["labels"] = {"trainer.kubeflow.org/support": "deprecated"}
    labelled = job(trainer={})
    labelled["metadata"] |= {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    other_group = job()
    other_group["spec"]["runtimeRef"]["apiGroup"] = "example.com"
    other_kind = job()
    other_kind["spec"]["runtimeRef"]["kind"] = "Other"
    mine = job(namespaced=True, trainer={"numNodes": 2})
    return {
        "namespaced-runtime": case(mine, runtime(policy=TORCH, namespaced=True)),
        "namespaced-runtime-missing": case(mine),
        "runtime-missing": case(job()),
        "runtime-of-other-group": case(other_group, runtime(policy=TORCH)),
        "runtime-of-other-kind": case(other_kind, runtime(policy=TORCH)),
        "runtime-deprecated": case(job(trainer={}), deprecated),
        "no-runtime-reference": case({**job(), "spec": {}}),
        "labels-of-job": case(
            labelled, runtime(policy=TORCH, metadata={"labels": {"l": "1"}, "annotations": {"n": "1"}})
        ),
        "suspended": case(job(suspend=True, trainer={"numNodes": 2}), runtime(policy=TORCH)),
        "managed-by-multikueue": case(job(managedBy="kueue.x-k8s.io/multikueue"), runtime(policy=TORCH)),
        "managed-by-other": case(job(managedBy="example.com/other"), runtime(policy=TORCH)),
        "deadline-zero": case(job(activeDeadlineSeconds=0), runtime(policy=TORCH)),
        "name-with-digit": case(job("1job"), runtime(policy=TORCH)),
        "name-with-dot": case(job("a.b"), runtime(policy=TORCH)),
        "name-long": case(job("a" * 64), runtime(policy=TORCH)),
        "name-too-long-for-pods": case(job("a" * 55, trainer={}), runtime(policy=TORCH)),
        "jobset-fields": case(
            job(trainer={}),
            runtime(
                policy=TORCH,
                jobset={
                    "failurePolicy": {"maxRestarts": 3},
                    "successPolicy": {"operator": "Any", "targetReplicatedJobs": ["node"]},
                    "ttlSecondsAfterFinished": 60,
                    "network": {"publishNotReadyAddresses": False},
                },
            ),
        ),
        "jobset-suspended-in-runtime": case(job(trainer={}), runtime(policy=TORCH, jobset={"suspend": True})),
        "runtime-replicas": case(job(), runtime(replicated_job(replicas=2), policy=TORCH)),
        "runtime-replicas-of-side-job": case(
            job(trainer={}),
            runtime(replicated_job(), replicated_job("side", "", container("a"), replicas=3), policy=TORCH),
        ),
        "runtime-without-node": case(
            job(), runtime(replicated_job("node", "trainer", container("main")), policy=TORCH)
        ),
        "runtime-without-ancestor": case(
            job(trainer={"numNodes": 2, "image": "example.com/mine:2"}),
            runtime(replicated_job("node", ""), policy=TORCH),
        ),
        "runtime-empty": case(job(), {**runtime(), "spec": {}}),
        "runtime-in-order-and-depends": case(
            job(),
            runtime(
                replicated_job("side", "", container("a")),
                replicated_job(dependsOn=[{"name": "side", "status": "Ready"}]),
                policy=TORCH,
                jobset={"startupPolicy": {"startupPolicyOrder": "InOrder"}},
            ),
        ),
        "runtime-two-errors": case(
            job(), runtime(replicated_job("node", "trainer", container("main"), replicas=4), policy=TORCH)
        ),
    }


def _generated(number: int) -> Object:
    """A TrainJob and a runtime with a random choice of valid parts."""
    chance = random.Random(number)

    def maybe(value: Any, probability: float = 0.4) -> Any:
        return value if chance.random() < probability else None

    def some(**fields: Any) -> Object:
        return {name: value for name, value in fields.items() if value is not None}

    def env(prefix: str) -> list[Object]:
        names = chance.sample(["A", "B", "C", "D"], chance.randint(1, 3))
        return [{"name": name, "value": f"{prefix}-{name}"} for name in names]

    def resources() -> Object:
        names = chance.sample(["cpu", "memory", "nvidia.com/gpu"], chance.randint(1, 3))
        amounts = {
            name: {"cpu": f"{chance.randint(1, 4)}", "memory": "1Gi", "nvidia.com/gpu": "1"}[name] for name in names
        }
        return {
            "limits": amounts,
            **some(requests=maybe({k: v for k, v in amounts.items() if k != "nvidia.com/gpu"} or None)),
        }

    def node() -> Object:
        return container(
            **some(
                env=maybe(env("runtime")),
                resources=maybe(resources()),
                command=maybe(["run"]),
                args=maybe(["x"]),
                ports=maybe([{"containerPort": 8000, "name": "http"}], 0.2),
            )
        )

    policy = some(numNodes=maybe(chance.randint(1, 4)))
    policy |= chance.choice([{"torch": {}}, {"torch": {}}, {"jax": {}}, {"xgboost": {}}, {}])
    with_data, with_side = chance.random() < 0.4, chance.random() < 0.4
    jobs = [initializer("dataset")] if with_data else []
    depends = some(dependsOn=maybe([{"name": "dataset-initializer", "status": "Complete"}])) if with_data else {}
    pod = some(nodeSelector=maybe({"zone": "a"}), priorityClassName=None, schedulerName=maybe("other"))
    jobs.append(replicated_job("node", "trainer", node(), **depends, pod=pod, job=some(backoffLimit=maybe(0))))
    if with_side:
        jobs.insert(
            chance.randint(0, len(jobs)) if not depends else len(jobs), replicated_job("side", "", container("helper"))
        )
    patches = []
    for index in range(chance.choice([0, 0, 1, 2])):
        edits = [
            pods(
                **some(
                    nodeSelector=maybe({"zone": "b", f"k{index}": "v"}),
                    tolerations=maybe([{"key": "t", "operator": "Exists"}]),
                    schedulingGates=maybe([{"name": "example.com/gate"}]),
                    serviceAccountName=maybe("sa"),
                    volumes=maybe([{"name": "scratch", "emptyDir": {}}]),
                    containers=maybe(
                        [{"name": "node", "volumeMounts": [{"name": f"scratch{index}", "mountPath": f"/m{index}"}]}]
                    ),
                ),
                **some(metadata=maybe({"labels": {f"p{index}": "1"}, "annotations": {"note": str(index)}})),
            )
        ]
        if with_side:
            edits.append(pods("side", **some(nodeSelector=maybe({"zone": "c"}))))
        chance.shuffle(edits)
        patches.append(patch(*edits, manager=f"example.com/m{index}", metadata=maybe({"labels": {"set": str(index)}})))
    trainer = some(
        image=maybe("example.com/mine:2"),
        command=maybe(["torchrun", "train.py"]),
        args=maybe(["--lr", "1"]),
        env=maybe(env("job")),
        numNodes=maybe(chance.randint(1, 5), 0.6),
        numProcPerNode=maybe(chance.randint(1, 4)),
        resourcesPerNode=maybe(resources()),
    )
    spec = some(
        trainer=maybe(trainer, 0.85),
        runtimePatches=patches or None,
        suspend=maybe(True, 0.3),
        initializer={
            "dataset": some(storageUri=maybe("hf://a/b", 0.8), env=maybe(env("data")), secretRef=maybe({"name": "s"}))
        }
        if with_data and chance.random() < 0.8
        else None,
    )
    if spec.get("initializer") == {"dataset": {}}:
        del spec["initializer"]
    namespaced = chance.random() < 0.3
    metadata = maybe({"labels": {"from": "runtime"}, "annotations": {"from": "runtime"}})
    runtime_object = runtime(*jobs, policy=policy or None, namespaced=namespaced, metadata=metadata)
    return case(job(namespaced=namespaced, **spec), runtime_object)


CASES: dict[str, Object] = {
    **_torch_cases(),
    **_policy_cases(),
    **_initializer_cases(),
    **_patch_cases(),
    **_object_cases(),
    **{f"generated-{number}": _generated(number) for number in range(GENERATED)},
}
