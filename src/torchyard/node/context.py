"""What all pods of a node share: API client, machine, images, addresses, devices, names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.node.devices.nvidia import DeviceAllocator
from torchyard.node.events import NodeEventRecorder
from torchyard.node.images import engine
from torchyard.node.images.model import Image
from torchyard.node.images.store import ImageStore
from torchyard.node.network.addresses import PodIPAllocator
from torchyard.node.runtime.id_ranges import IdRangeAllocator
from torchyard.node.runtime.idmapped_mounts import MountProbe
from torchyard.node.runtime.machine_features import MachineFeatures
from torchyard.node.runtime.root_templates import RootTemplates
from torchyard.node.settings import NodeSettings
from torchyard.node.shim.client import ZygoteClient


@dataclass(slots=True)
class NodeContext:
    client: Client
    settings: NodeSettings
    machine: MachineFeatures
    zygote: ZygoteClient
    images: ImageStore
    addresses: PodIPAllocator
    devices: DeviceAllocator
    recorder: NodeEventRecorder
    host_ip: str
    ids: IdRangeAllocator | None = None  # None: no pod has ids of its own
    mount_probe: MountProbe | None = None
    templates: RootTemplates | None = None  # None: every container's root is built from nothing
    names: Callable[[str], Mapping[str, list[str]]] = field(default=lambda _: {})  # the DNS names of a namespace
    services: Callable[[str], list[Object]] = field(default=lambda _: [])  # the Services of a namespace
    allocatable: dict[str, str] = field(default_factory=dict)
    # the pods with host ports that this node has accepted and that have not ended, by uid
    host_port_pods: dict[str, Object] = field(default_factory=dict)
    # how many pods' disk usage is measured at the same time
    disk_usage_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    async def engine_image(self, name: str) -> Image | None:
        """The engine's image, if the engine has it and is to run it: by the settings, or since no other rung can."""
        if not self.machine.engine or not (self.settings.engine or self.images.lacks(name)):
            return None
        return await engine.find(self.machine.engine, name)
