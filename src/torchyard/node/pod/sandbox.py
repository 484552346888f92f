"""Everything around a pod's containers: directory, address, name files, volumes, devices, shim."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

from torchyard.api.gvr import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.core.pod.view import every_container, init_containers, main_containers
from torchyard.node.context import NodeContext
from torchyard.node.images.model import Image
from torchyard.node.network import rendezvous_ports
from torchyard.node.pod import etc_files, shared_memory
from torchyard.node.pod.container_config import hostname
from torchyard.node.pod.environment import field_of, resource_of
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.resources import cgroups
from torchyard.node.shim.client import ShimClient, ShimNotRunning
from torchyard.node.volumes import nfs
from torchyard.node.volumes.mounter import CHANGING, NFS, MountedVolume, VolumeMounter, contents, volumes_of

# What a volume of a pod may name.
_BY_KIND = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "PersistentVolume": PERSISTENT_VOLUMES,
}


class PodSandbox:
    def __init__(self, context: NodeContext, pod: Object) -> None:
        self._context = context
        self.pod = pod
        self.dir = PodDir(context.settings.pods / pod["metadata"]["uid"])
        self.shim = ShimClient(self.dir.path)
        self.volumes: dict[str, MountedVolume] = {}
        self.ready = False
        self._refresh_at = 0.0
        self._tokens: dict[str, tuple[str, float]] = {}  # what was asked for → token, when to renew it

    @property
    def plan(self) -> Object:
        return self.dir.plan() or {}

    @property
    def ip(self) -> str:
        plan = self.dir.plan()
        if plan is None:
            return ""
        wired = plan.get("network")
        return str(wired["address"]) if wired else self._context.host_ip

    def event(self, reason: str, message: str, *, container: str = "", kind: str = "Normal") -> None:
        self._context.recorder.pod(self.pod, reason, message, container=container, kind=kind)

    async def ensure(self) -> bool:
        """Bring up what is missing; whether that was the shim. Raises VolumeError while a volume cannot be had."""
        plan = self.dir.plan()
        if plan is None or plan.get("released"):
            self._take_up(engine=await self._is_for_the_engine())
        self.volumes = await self._prepare_volumes()
        plan = self.plan
        if "tmpfs" not in plan:
            memory = [(one.path, one.memory) for one in self.volumes.values() if one.memory is not None]
            plan["tmpfs"] = [{"path": str(path), "size": size} for path, size in memory]
            self.dir.write_plan(plan)
        self.refresh_names()
        is_new = await self._context.zygote.start_shim(self.dir.path)
        self._refresh_at = time.time() + self._context.settings.volume_refresh_seconds
        self.ready = True
        return is_new

    async def _is_for_the_engine(self) -> bool:
        """A pod runs in the engine as a whole or not at all: its containers share one network."""
        names = {one["image"] for one in main_containers(self.pod) + init_containers(self.pod)}
        return all([await self._context.engine_image(name) is not None for name in names])

    async def image(self, name: str) -> Image:
        """What a container's image stands for, on the rung this pod was taken up on."""
        found = await self._context.engine_image(name) if self.plan.get("engine") else None
        return found or self._context.images.resolve(name)

    async def has_image(self, name: str) -> bool:
        """Whether an image that was not here has come: built, or held by the engine now.

        The engine has it for whole pods only: one that never ran is given up here, to be taken up anew over there.
        """
        if not self._context.images.lacks(name):
            return True
        if not self.dir.container_names() and await self._is_for_the_engine():
            await self.stop_shim()
        return False

    def _take_up(self, *, engine: bool) -> None:
        """Decide what the pod gets and write it down before anything is made."""
        context, spec, metadata = self._context, self.pod["spec"], self.pod["metadata"]
        sandboxed = context.machine.sandbox and not engine
        devices = context.devices.take(main_containers(self.pod) + init_containers(self.pod))
        wired = None
        if sandboxed and context.machine.network and not spec.get("hostNetwork"):
            wired = context.settings.ranges.for_pod(context.addresses.take())
        ports = {} if wired or spec.get("hostNetwork") else self._meeting_ports()
        self.dir.write_plan(
            {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "group": self._group(),
                "hostname": hostname(self.pod),
                "sandboxed": sandboxed,
                "engine": engine,
                "network": wired,
                "devices": devices,
                "ports": ports,
            }
        )

    def _meeting_ports(self) -> dict[str, int]:
        """Where the pod and its peers meet in the machine's own network, which other jobs use as well."""
        asked = rendezvous_ports.ports_of(main_containers(self.pod))
        if not asked:
            return {}
        plans, group = list(self._every_plan()), self._group()
        chosen = rendezvous_ports.choose(
            asked,
            peers=[plan.get("ports") or {} for plan in plans if plan.get("group") == group],
            others=[
                plan.get("ports") or {} for plan in plans if plan.get("group") != group and not plan.get("released")
            ],
        )
        for port, number in chosen.items():
            if int(port) != number:
                why = "Pods have no network of their own on this machine"
                self.event("PortReplaced", f"{why}: port {port} is taken, the job's pods meet at port {number} instead")
        return chosen

    def is_peer(self, name: str) -> bool:
        """Whether a name is that of a service beside the pod which nothing here resolves, for want of a hosts file."""
        return not self.plan["sandboxed"] and name.partition(".")[0] in {
            one["metadata"]["name"] for one in self._context.services(self.pod["metadata"]["namespace"])
        }

    def refresh_names(self) -> None:
        """Write hosts, resolv.conf and hostname as they should be now."""
        etc_files.write(self._context, self.pod, self.dir, self.ip)

    def _sources(self) -> VolumeMounter:
        return VolumeMounter(
            pod_dir=self.dir.path,
            state=self._context.settings.private or self._context.settings.root,
            claims=self._context.settings.claims,
            fetch=self.fetch,
            token=self._token,
            field=lambda kind, reference: self.field(kind, reference, {}),
            pod=self.pod["metadata"]["name"],
        )

    async def _prepare_volumes(self) -> dict[str, MountedVolume]:
        sources = self._sources()
        return {volume["name"]: await sources.prepare(volume) for volume in self.pod["spec"].get("volumes") or ()}

    async def refresh_volumes(self, now: float) -> float | None:
        """Write changed config maps, secrets and fields into the running pod, when due. Answers when that is next."""
        changing = [one for one in self.pod["spec"].get("volumes") or () if CHANGING & set(one)]
        if not self.ready or not changing:
            return None
        if now >= self._refresh_at:
            self._refresh_at = now + self._context.settings.volume_refresh_seconds
            sources = self._sources()
            for volume in changing:
                await sources.prepare(volume)
        return self._refresh_at

    async def fetch(self, kind: str, name: str) -> Object | None:
        ref = _BY_KIND[kind]
        namespace = self.pod["metadata"]["namespace"] if ref.namespaced else ""
        return await self._context.client.find(ref, name, namespace)

    async def data_of(self, kind: str, name: str) -> dict[str, str] | None:
        """A config map's or secret's keys as text, for environment variables."""
        found = await self.fetch(kind, name)
        if found is None:
            return None
        return {key: value.decode(errors="replace") for key, value in contents(kind, found).items()}

    async def _token(self, source: Object) -> str:
        """A token of the pod's account; as with a kubelet, renewed when four fifths of its life are over."""
        key = json.dumps(source, sort_keys=True)
        known = self._tokens.get(key)
        if known and time.time() < known[1]:
            return known[0]
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        seconds = source.get("expirationSeconds") or 3600
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source["audience"]] if source.get("audience") else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        account = spec.get("serviceAccountName") or "default"
        answer = await self._context.client.create(
            SERVICE_ACCOUNTS, request, metadata["namespace"], name=account, subresource="token"
        )
        token = str(answer["status"]["token"])
        self._tokens[key] = (token, time.time() + 0.8 * seconds)
        return token

    def field(self, kind: str, reference: Object, container: Object) -> str:
        if kind == "fieldRef":
            status = {
                "podIP": self.ip,
                "podIPs": [{"ip": self.ip}],
                "hostIP": self._context.host_ip,
                "hostIPs": [{"ip": self._context.host_ip}],
            }
            return field_of(self.pod, reference["fieldPath"], status=status)
        return resource_of(every_container(self.pod), reference, container, self._context.allocatable)

    def shared_memory(self) -> Path | None:
        return shared_memory.of_group(self._context.settings.root, self._group())

    def _group(self) -> str:
        """The job a pod belongs to, or else the pod itself."""
        owners = self.pod["metadata"].get("ownerReferences") or ()
        owner = next((str(one["uid"]) for one in owners if one.get("controller")), "")
        return owner or str(self.plan.get("group") or self.pod["metadata"]["uid"])

    def _is_last_of_its_group(self, group: str) -> bool:
        return not any(plan.get("group") == group for plan in self._every_plan())

    def _every_plan(self) -> Iterator[Object]:
        """What was decided about each pod of this node."""
        for path in self._context.settings.pods.iterdir():
            if plan := PodDir(path).plan():
                yield plan

    async def alive(self) -> bool:
        try:
            await self.shim.hello()
        except ShimNotRunning:
            return False
        return True

    async def tear_down(self) -> None:
        """End the shim with all that is under it, give back what the pod had, remove its directory."""
        group = self._group()
        await self.stop_shim()
        await nfs.unmount_all(volumes_of(self.dir.path, NFS))
        await asyncio.to_thread(self.dir.remove)
        if self._is_last_of_its_group(group):
            await asyncio.to_thread(shared_memory.remove, self._context.settings.root, group)

    async def stop_shim(self) -> None:
        """End everything that runs. Others may then have the address and the devices, though the pod is still there."""
        self.ready = False
        try:
            async with await self.shim.channel() as channel:
                await self.shim.shutdown()
                # the shim never speaks here: what comes is its end
                await channel.receive()
        except ShimNotRunning:
            pass
        for name in self.dir.container_names():
            cgroups.remove(self._context.machine.limits, self.pod["metadata"]["uid"], name)
        plan = self.plan
        if plan and not plan.get("released"):
            if plan.get("network"):
                self._context.addresses.give_back(plan["network"]["address"])
            self._context.devices.give_back(plan.get("devices") or {})
            self.dir.write_plan({**plan, "released": True})
