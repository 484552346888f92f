"""Step 2 of a container's start (CRI: CreateContainer): environment, devices, cgroups, and the config on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.context import NodeContext
from torchyard.node.devices import nvidia
from torchyard.node.images.model import Image
from torchyard.node.network import rendezvous_ports
from torchyard.node.pod import environment
from torchyard.node.pod.container_config import ContainerOptions, build_config
from torchyard.node.pod.engine_config import engine_config
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.resources import cgroups
from torchyard.node.runtime.idmapped_mounts import ContainerMounts
from torchyard.node.shim import mount_sources, records, shifted_ids

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig, PodRecord


async def create(context: NodeContext, sandbox: PodSandbox, container: Object, image: Image, attempt: int) -> list[int]:
    """Write the config of one attempt; the shim starts from it.

    Returns open mounts that the config refers to, where the pod has ids of its own: the caller sends and closes them.
    """
    pod_record = sandbox.record
    assert pod_record is not None, "a sandbox exists before its containers"
    name = container["name"]
    if not pod_record["network"]:
        container = rendezvous_ports.rewrite(container, pod_record.get("ports") or {}, sandbox.is_peer)
    env = await _environment(context, sandbox, container)
    devices = (pod_record.get("devices") or {}).get(name, [])
    gpu_env = nvidia.environment(devices) if context.machine.sandbox or devices else {}
    options = ContainerOptions(
        pod=sandbox.pod,
        container=container,
        attempt=attempt,
        image=image,
        env={**gpu_env, **_threads(container), **env},
        volumes=sandbox.volumes.mounted,
        pod_dir=sandbox.dir,
        settings=context.settings,
        sandboxed=pod_record["sandboxed"],
        devices=tuple(nvidia.device_files()) if devices else (),
        shared_memory=sandbox.shared_memory(),
        cgroups=tuple(_create_cgroups(context, sandbox, container)),
        seccomp=context.machine.seccomp,
        templates=context.templates,
    )
    config = build_config(options)
    if image.engine:
        engine_name = f"yard-{sandbox.pod['metadata']['uid'][:8]}-{name}-{attempt}"
        config = engine_config(config, options, engine=context.machine.engine, name=engine_name)
    path = records.config_path(str(sandbox.dir.path), name, attempt)
    if not pod_record.get("ids"):
        records.write(path, config)
        return []
    mounts = _map_mounts(config, sandbox, pod_record)
    try:
        records.write(path, mounts.config)
    except BaseException:
        mounts.close()
        raise
    return mounts.files


def _map_mounts(config: ContainerConfig, sandbox: PodSandbox, pod_record: PodRecord) -> ContainerMounts:
    shim_pid = records.shim_pid(str(sandbox.dir.path))
    largest = max(config["user"]["uid"], config["user"]["gid"], *config["user"]["groups"])
    if largest >= shifted_ids.COUNT:
        raise CreateContainerConfigError(messages.id_too_large(largest), code=messages.REASON_CREATE_ERROR)
    user_namespace = os.open(f"/proc/{shim_pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        in_memory = {volume["path"] for volume in pod_record.get("tmpfs") or ()}
        return ContainerMounts(config, user_namespace=user_namespace, in_memory=in_memory)
    except mount_sources.MountRefused as error:
        raise CreateContainerConfigError(str(error.strerror)) from error
    finally:
        os.close(user_namespace)


async def _environment(context: NodeContext, sandbox: PodSandbox, container: Object) -> dict[str, str]:
    sources: set[tuple[str, str]] = set()
    for source in container.get("envFrom") or ():
        sources |= {(kind, source[key]["name"]) for key, kind in _ENV_FROM if source.get(key)}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        sources |= {(kind, source[key]["name"]) for key, kind in _VALUE_FROM if source.get(key)}
    data = {(kind, name): await sandbox.data.variables(kind, name) for kind, name in sources}
    return environment.resolve(
        container,
        _service_variables(context, sandbox),
        namespace=sandbox.pod["metadata"]["namespace"],
        lookup=lambda kind, name: data[kind, name],
        fields=lambda kind, reference: sandbox.data.field(kind, reference, container),
    )


_ENV_FROM = (("configMapRef", "ConfigMap"), ("secretRef", "Secret"))
_VALUE_FROM = (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret"))


def _service_variables(context: NodeContext, sandbox: PodSandbox) -> dict[str, str]:
    """`NAME_SERVICE_HOST` and so on: always of the kubernetes service, of the namespace's unless disabled."""
    variables: dict[str, str] = {}
    if sandbox.pod["spec"].get("enableServiceLinks") is not False:
        for service in context.services(sandbox.pod["metadata"]["namespace"]):
            address = service["spec"].get("clusterIP")
            if address and address != "None":
                name = service["metadata"]["name"].upper().replace("-", "_")
                variables |= _docker_links(name, address, service["spec"].get("ports") or [])
    if context.settings.api_address:
        # The machine's network leads elsewhere: a pod that uses it would send its token to a stranger.
        record = sandbox.record
        is_in_cluster = record is not None and bool(record.get("network"))
        host, port = (context.settings.network.api, 443) if is_in_cluster else context.settings.api_address
        variables |= _docker_links("KUBERNETES", host, [{"name": "https", "port": port}])
    return variables


def _docker_links(name: str, host: str, ports: list[Object]) -> dict[str, str]:
    if not ports:
        return {}
    first = ports[0]["port"]
    variables = {f"{name}_SERVICE_HOST": host, f"{name}_SERVICE_PORT": str(first)}
    for port in ports:
        if port.get("name"):
            variables[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
    for port in ports:
        protocol = (port.get("protocol") or "TCP").lower()
        url = f"{protocol}://{host}:{port['port']}"
        head = f"{name}_PORT_{port['port']}_{protocol.upper()}"
        if port is ports[0]:
            variables[f"{name}_PORT"] = url
        variables |= {head: url, f"{head}_PROTO": protocol, f"{head}_PORT": str(port["port"]), f"{head}_ADDR": host}
    return variables


def _threads(container: Object) -> dict[str, str]:
    """As many threads as the container requests CPUs: without cgroups nothing else limits it.

    More threads than the machine has CPUs help no program, and libraries fail to start millions of them.
    """
    resources = container.get("resources") or {}
    text = (resources.get("limits") or {}).get("cpu") or (resources.get("requests") or {}).get("cpu")
    if text is None:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, min(quantity.parse(str(text)).value, os.cpu_count() or 1)))}


def resize(context: NodeContext, sandbox: PodSandbox, container: Object) -> None:
    """Apply changed limits to a running container. Without groups they apply when it is started again."""
    _create_cgroups(context, sandbox, container)


def _create_cgroups(context: NodeContext, sandbox: PodSandbox, container: Object) -> list[Path]:
    """The groups of a container, with its limits, below those of the pod, if the pod has limits too."""
    support, uid = context.machine.cgroups, sandbox.pod["metadata"]["uid"]
    of_pod, of_container = _limits(sandbox.pod["spec"]), _limits(container)
    if not support.enforced or not (of_pod or of_container):
        return []
    shim_pid = records.shim_pid(str(sandbox.dir.path))
    if of_pod:
        memory, cpu = _amounts(of_pod)
        cgroups.limit_pod(support, uid, memory=memory, cpu_milli=cpu, shim_pid=shim_pid)
    memory, cpu = _amounts(of_container)
    return cgroups.create(support, uid, container["name"], memory=memory, cpu_milli=cpu, shim_pid=shim_pid)


def _limits(holder: Object) -> Object:
    limits = (holder.get("resources") or {}).get("limits") or {}
    return {name: amount for name, amount in limits.items() if name in ("cpu", "memory")}


def _amounts(limits: Object) -> tuple[int | None, int | None]:
    """Bytes of memory and thousandths of CPUs."""
    memory = quantity.parse(str(limits["memory"])).value if "memory" in limits else None
    return memory, quantity.parse(str(limits["cpu"])).milli if "cpu" in limits else None
