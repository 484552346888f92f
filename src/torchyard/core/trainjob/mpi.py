"""The ML policy mpi: a launcher that reaches the nodes with SSH, by a hostfile and a key pair of the job."""

from __future__ import annotations

from itertools import islice

from torchyard.api.objects import Object
from torchyard.api.trainjob import environment, names

_HOSTFILE_DIRECTORY = "/etc/mpi"
# With so many hosts the file is larger than a ConfigMap may be, and the server refuses it: no more need be listed.
_MAX_HOSTS = 100_000
_SSH_VOLUME, _HOSTFILE_VOLUME = "mpi-ssh-auth", "mpi-hostfile"
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"


def processes(policy: Object, trainer: Object) -> int:
    return int(trainer.get("numProcPerNode") or policy[names.MPI].get("numProcPerNode") or 1)


def set_counts(policy: Object, trainer: Object, counts: dict[str, int]) -> None:
    """Set the number of nodes in place. With `runLauncherAsNode` the launcher is one of them."""
    nodes = trainer.get("numNodes")
    if nodes is None or names.NODE not in counts:
        return
    if policy[names.MPI].get("runLauncherAsNode"):
        counts[names.LAUNCHER] = 1
        counts[names.NODE] = nodes - 1
    else:
        counts[names.NODE] = nodes


def launcher_environment(slots: int) -> list[Object]:
    values = {
        environment.OMPI_HOSTFILE: f"{_HOSTFILE_DIRECTORY}/{names.HOSTFILE_KEY}",
        environment.OMPI_KEEP_FQDN: "true",
        environment.OMPI_SLOTS: str(slots),
        environment.OMPI_RSH_ARGS: "-o ConnectionAttempts=10",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def volumes(job: str, replicated_job: str) -> list[Object]:
    if replicated_job not in (names.LAUNCHER, names.NODE):
        return []
    keys = (
        (PRIVATE_KEY, 0o640, "id_rsa"),
        (PUBLIC_KEY, 0o644, "id_rsa.pub"),
        (PUBLIC_KEY, 0o644, "authorized_keys"),
    )
    items = [{"key": key, "mode": mode, "path": path} for key, mode, path in keys]
    secret = {"secretName": names.ssh_secret_name(job), "defaultMode": 0o400, "items": items}
    mounted: list[Object] = [{"name": _SSH_VOLUME, "secret": secret}]
    if replicated_job == names.LAUNCHER:
        hostfile = {"key": names.HOSTFILE_KEY, "mode": 0o444, "path": names.HOSTFILE_KEY}
        mounted.append({"name": _HOSTFILE_VOLUME, "configMap": {"name": names.hostfile_name(job), "items": [hostfile]}})
    return mounted


def mounts(policy: Object, replicated_job: str) -> list[Object]:
    """The mounts of the container `node`."""
    if replicated_job not in (names.LAUNCHER, names.NODE):
        return []
    path = policy[names.MPI].get("sshAuthMountPath") or "/root/.ssh"
    mounted: list[Object] = [{"name": _SSH_VOLUME, "mountPath": path}]
    if replicated_job == names.LAUNCHER:
        mounted.append({"name": _HOSTFILE_VOLUME, "mountPath": _HOSTFILE_DIRECTORY})
    return mounted


def hostfile(job: Object, policy: Object, counts: dict[str, int], subdomain: str) -> Object:
    name, slots = job["metadata"]["name"], processes(policy, job["spec"].get("trainer") or {})
    with_launcher = bool(policy[names.MPI].get("runLauncherAsNode"))
    hosts = (
        f"{name}-{replicated_job}-0-{index}.{subdomain} slots={slots}\n"
        for replicated_job, count in counts.items()
        if replicated_job == names.NODE or (replicated_job == names.LAUNCHER and with_launcher)
        for index in range(count)
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, names.hostfile_name(name)),
        "data": {names.HOSTFILE_KEY: "".join(islice(hosts, _MAX_HOSTS))},
    }


def key_secret(job: Object, private: str, public: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, names.ssh_secret_name(job["metadata"]["name"])),
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
        "stringData": {PRIVATE_KEY: private, PUBLIC_KEY: public},
    }


def _metadata(job: Object, name: str) -> Object:
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [names.owner_reference(job)],
    }
