"""Starting one attempt of a container: image, environment, mounts, launch."""

from __future__ import annotations

from typing import Any

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.node.context import NodeContext
from torchyard.node.devices import nvidia
from torchyard.node.images.model import Image
from torchyard.node.network import rendezvous_ports
from torchyard.node.pod import environment
from torchyard.node.pod.container_config import ContainerOptions, build, engine_launch
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.resources import cgroups
from torchyard.node.shim import records


async def start(
    context: NodeContext, sandbox: PodSandbox, container: Object, image: Image, attempt: int
) -> records.ContainerRecord:
    """Write down how to start, then have the shim do it."""
    plan = sandbox.plan
    if not plan["network"]:
        container = rendezvous_ports.adjusted(container, plan.get("ports") or {}, sandbox.is_peer)
    env = await _environment(context, sandbox, container)
    devices = (plan.get("devices") or {}).get(container["name"], [])
    gpu = nvidia.environment(devices) if context.machine.sandbox or devices else {}
    options = ContainerOptions(
        pod=sandbox.pod,
        container=container,
        attempt=attempt,
        image=image,
        env={**gpu, **_threads(container), **env},
        volumes=sandbox.volumes,
        pod_dir=sandbox.dir,
        settings=context.settings,
        sandboxed=bool(plan["sandboxed"]),
        devices=tuple(nvidia.nodes()) if devices else (),
        shared_memory=sandbox.shared_memory(),
        cgroups=tuple(_groups(context, sandbox, container)),
    )
    launch = build(options)
    if image.engine:
        tag = f"yard-{sandbox.pod['metadata']['uid'][:8]}-{container['name']}-{attempt}"
        launch = engine_launch(launch, options, engine=context.machine.engine, tag=tag)
    records.write(records.launch_path(str(sandbox.dir.path), container["name"], attempt), launch)
    return await sandbox.shim.start(container["name"], attempt)


async def _environment(context: NodeContext, sandbox: PodSandbox, container: Object) -> dict[str, str]:
    wanted: set[tuple[str, str]] = set()
    for source in container.get("envFrom") or ():
        wanted |= {(kind, source[key]["name"]) for key, kind in _WHOLE if source.get(key)}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        wanted |= {(kind, source[key]["name"]) for key, kind in _SINGLE if source.get(key)}
    found = {(kind, name): await sandbox.data_of(kind, name) for kind, name in wanted}
    return environment.resolve(
        container,
        _service_variables(context, sandbox.pod),
        lookup=lambda kind, name: found[kind, name],
        fields=lambda kind, reference: sandbox.field(kind, reference, container),
    )


_WHOLE = (("configMapRef", "ConfigMap"), ("secretRef", "Secret"))
_SINGLE = (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret"))


def _service_variables(context: NodeContext, pod: Object) -> dict[str, str]:
    """`NAME_SERVICE_HOST` and its kin: the kubernetes service's always, those of the namespace unless not wanted."""
    ranges = context.settings.ranges
    variables: dict[str, str] = {}
    if context.settings.api_address:
        host, port = (ranges.api, 443) if context.machine.network else context.settings.api_address
        variables |= _docker_links("KUBERNETES", host, [{"name": "https", "port": port}])
    if pod["spec"].get("enableServiceLinks") is False:
        return variables
    for service in context.services(pod["metadata"]["namespace"]):
        address = service["spec"].get("clusterIP")
        if address and address != "None":
            name = service["metadata"]["name"].upper().replace("-", "_")
            variables |= _docker_links(name, address, service["spec"].get("ports") or [])
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
    """As many threads as the container asks for cpus: without cgroups nothing else keeps it from taking them all."""
    resources = container.get("resources") or {}
    text = (resources.get("limits") or {}).get("cpu") or (resources.get("requests") or {}).get("cpu")
    if text is None:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, quantity.parse(str(text)).value))}


def _groups(context: NodeContext, sandbox: PodSandbox, container: Object) -> list[Any]:
    limits = (container.get("resources") or {}).get("limits") or {}
    if not context.machine.limits.enforced or not {"cpu", "memory"} & set(limits):
        return []
    memory = quantity.parse(str(limits["memory"])).value if "memory" in limits else None
    cpu = quantity.parse(str(limits["cpu"])).milli if "cpu" in limits else None
    uid = sandbox.pod["metadata"]["uid"]
    return list(cgroups.make(context.machine.limits, uid, container["name"], memory=memory, cpu_milli=cpu))
