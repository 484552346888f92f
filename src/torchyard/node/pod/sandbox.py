"""A pod's sandbox: everything its containers share. Directory, address, /etc files, volumes, devices, shim."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.api.gvr import RUNTIME_CLASSES
from torchyard.api.metadata import is_uid
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.admission import sysctls
from torchyard.core.pod.view import init_containers, main_containers
from torchyard.node.context import NodeContext
from torchyard.node.images.model import Image
from torchyard.node.pod import etc_files, peers, shared_memory
from torchyard.node.pod.field_check import check_fields
from torchyard.node.pod.hostname import sandbox_hostname
from torchyard.node.pod.pod_data import PodData
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.pod.pod_volumes import PodVolumes
from torchyard.node.resources import cgroups
from torchyard.node.runtime.id_ranges import not_shifted_by_spec
from torchyard.node.runtime.idmapped_mounts import MountProbe
from torchyard.node.shim import records
from torchyard.node.shim.client import ShimClient, ShimNotRunning
from torchyard.node.threads import in_thread
from torchyard.node.volumes import nfs
from torchyard.node.volumes.mounter import NFS, volumes_dir

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord


RUNTIME_HANDLERS = ("runc", "crun", "nvidia", "torchyard")


log = logging.getLogger(__name__)


def log_directory(logs: Path, pod: Object) -> Path:
    """Where the logs of a removed pod go: by its controller's uid, which a user may have written, if it is a uid."""
    metadata = pod["metadata"]
    controllers = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    uid = str(controllers[0].get("uid")) if controllers else ""
    return logs.joinpath(uid if is_uid(uid) else metadata["uid"], metadata["name"])


class PodSandbox:
    """`ready` is set while containers can be started in it. `pod` is replaced when the object changes."""

    def __init__(self, context: NodeContext, pod: Object) -> None:
        self._context = context
        self.pod = pod
        self.dir = PodDir(context.settings.pods / pod["metadata"]["uid"])
        self.shim = ShimClient(self.dir.path)
        self.data = PodData(context, pod=lambda: self.pod, ip=lambda: self.ip)
        self.volumes = PodVolumes(context, self.dir.path, self.data, pod=lambda: self.pod)
        self.ready = False
        self.ignored_fields: list[str] = []  # texts about fields that have no effect on this pod

    @property
    def record(self) -> PodRecord | None:
        """What was decided for the pod; None before that."""
        return self.dir.record()

    @property
    def ip(self) -> str:
        record = self.record
        if record is None:
            return ""
        network = record.get("network")
        return network["address"] if network else self._context.host_ip

    def event(self, reason: str, message: str, *, container: str = "", kind: str = "Normal") -> None:
        self._context.recorder.pod(self.pod, reason, message, container=container, kind=kind)

    async def ensure(self) -> bool:
        """Create what is missing; whether the shim is new. Raises VolumeError while a volume cannot be mounted."""
        await self._check_runtime_class()
        record = self.record
        if record is None or record.get("released"):
            if record and self._context.ids:
                self._context.ids.release(record)
            record = self._admit(engine=await self._uses_engine())
        self.ignored_fields = check_fields(self.pod, record)
        await self.volumes.mount()
        if "tmpfs" not in record:
            record["tmpfs"] = self.volumes.tmpfs()
            self._choose_ids(record)
            self.dir.write_record(record)
        self.refresh_etc_files()
        is_new = await self._context.zygote.start_shim(self.dir.path)
        self.volumes.refresh_later()
        self.ready = True
        return is_new

    async def adopt(self) -> bool:
        """Take over a pod that runs; whether its shim is new.

        What its volumes are made from may be gone, as in a namespace that is being deleted. The pod keeps what it has,
        and can still be stopped.
        """
        try:
            return await self.ensure()
        except (YardError, OSError) as error:
            namespace, name = self.pod["metadata"]["namespace"], self.pod["metadata"]["name"]
            log.warning("volumes of a running pod not refreshed: pod=%s/%s error=%r", namespace, name, str(error))
            self.ready = True
            return False

    async def _check_runtime_class(self) -> None:
        """The node has one runtime; it serves the handlers whose containers it can stand in for."""
        name = self.pod["spec"].get("runtimeClassName")
        if not name:
            return
        runtime_class = await self._context.client.find(RUNTIME_CLASSES, name)
        if runtime_class is None:
            raise YardError(messages.runtime_class_missing(name), code=messages.REASON_FAILED_SANDBOX)
        if runtime_class["handler"] not in RUNTIME_HANDLERS:
            message = messages.no_runtime(runtime_class["handler"])
            raise YardError(message, code=messages.REASON_FAILED_SANDBOX)

    async def _uses_engine(self) -> bool:
        """A pod runs in the container engine as a whole or not at all: its containers share one network."""
        images = {container["image"] for container in main_containers(self.pod) + init_containers(self.pod)}
        return all([await self._context.engine_image(image) is not None for image in images])

    async def image(self, name: str) -> Image:
        """The image of that name, on the rung this pod was admitted to."""
        record = self.record
        image = await self._context.engine_image(name) if record and record.get("engine") else None
        return image or self._context.images.resolve(name)

    async def has_image(self, name: str) -> bool:
        """Whether an image that was missing exists now: built, or in the container engine.

        The engine takes whole pods only. A pod that never ran is stopped here, so that it is admitted again there.
        """
        if not self._context.images.lacks(name):
            return True
        if not self.dir.container_names() and await self._uses_engine():
            await self.stop_shim()
        return False

    def _admit(self, *, engine: bool) -> PodRecord:
        """Allocate what the pod gets, and record it before anything is created."""
        context, spec, metadata = self._context, self.pod["spec"], self.pod["metadata"]
        sandboxed = context.machine.sandbox and not engine
        devices = context.devices.allocate(main_containers(self.pod) + init_containers(self.pod))
        network = None
        if sandboxed and context.machine.network and not spec.get("hostNetwork"):
            network = context.settings.network.for_pod(context.addresses.allocate())
        record: PodRecord = {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "group": self._group(),
            "hostname": sandbox_hostname(self.pod, context.settings.network.domain),
            "sandboxed": sandboxed,
            "ipc": "NODE" if spec.get("hostIPC") else "POD",
            "sysctls": sysctls(self.pod) if sandboxed else {},
            "engine": engine,
            "network": network,
            "devices": devices,
            "ports": {} if network or spec.get("hostNetwork") else self._choose_ports(),
        }
        try:
            self.dir.write_record(record)
        except OSError:  # the disk is full, for example: the pod is admitted later
            if network:
                context.addresses.release(network["address"])
            context.devices.release(devices)
            raise
        return record

    def _choose_ids(self, record: PodRecord) -> None:
        """Give the pod ids of its own, if the machine and what it mounts allow it."""
        context = self._context
        if not (context.ids and context.mount_probe and record["sandboxed"]):
            return
        reason = not_shifted_by_spec(self.pod)
        if not reason and record["devices"]:
            reason = "processes that share memory of a GPU must have the same uid"
        reason = reason or self._unmappable(context.mount_probe)
        if reason:
            log.info("ids not shifted: pod=%s/%s reason=%r", record["namespace"], record["name"], reason)
        else:
            record["ids"] = context.ids.allocate(record["uid"])

    def _unmappable(self, probe: MountProbe) -> str:
        """Why something that the pod mounts cannot have the pod's ids; empty if everything can."""
        paths = [self.dir.path, *(volume.path for volume in self.volumes.mounted.values() if volume.memory is None)]
        if shared_memory.BASE.is_dir():
            paths.append(shared_memory.BASE)
        return next((problem for problem in map(probe.problem, paths) if problem), "")

    def _choose_ports(self) -> dict[str, int]:
        ports = peers.choose_ports(self.pod, self._group(), self._context.settings.pods)
        for port, number in ports.items():
            if int(port) != number:
                self.event(messages.REASON_PORT_REPLACED, messages.port_replaced(port, number))
        return ports

    def is_peer(self, name: str) -> bool:
        """Whether a name is that of a service of the namespace, which a pod without a hosts file cannot resolve."""
        record = self.record
        services = self._context.services(self.pod["metadata"]["namespace"])
        return (
            record is not None
            and not record["sandboxed"]
            and name.partition(".")[0] in {service["metadata"]["name"] for service in services}
        )

    def refresh_etc_files(self) -> None:
        """Write hosts, resolv.conf and hostname as they should be now."""
        etc_files.write(self._context, self.pod, self.dir, self.ip)

    async def refresh_volumes(self, now: float) -> float | None:
        """Returns when the next refresh is due; None when no volume needs one."""
        return await self.volumes.refresh(now) if self.ready else None

    def shared_memory(self) -> Path | None:
        return shared_memory.directory_of(self._context.settings.root, self._group())

    def _group(self) -> str:
        return peers.group_of(self.pod, self.record)

    async def alive(self) -> bool:
        try:
            await self.shim.hello()
        except ShimNotRunning:
            return False
        return True

    async def tear_down(self) -> None:
        """End the shim and its containers, release what the pod had, remove its directory."""
        group, record = self._group(), self.record
        await self.stop_shim()
        await nfs.unmount_all(volumes_dir(self.dir.path, NFS))
        kept_logs = self._context.settings.kept_logs
        if kept_logs is not None:
            try:
                await in_thread(self.dir.keep_logs, log_directory(kept_logs, self.pod))
            except OSError as error:
                log.warning("cannot keep the logs of a pod: pod=%s error=%s", self.pod["metadata"]["name"], error)
        await in_thread(self.dir.remove)
        if record and self._context.ids:
            self._context.ids.release(record)
        others = peers.all_records(self._context.settings.pods)
        if not any(record.get("group") == group for record in others):
            await in_thread(shared_memory.remove, self._context.settings.root, group)

    async def stop_shim(self) -> None:
        """End everything that runs. Address and devices are free for other pods, though this pod still exists."""
        self.ready = False
        shim_pid = records.shim_pid(str(self.dir.path))
        try:
            async with await self.shim.channel() as channel:
                await self.shim.shutdown()
                # the shim sends nothing on this channel: receive returns when it ends
                await channel.receive()
        except ShimNotRunning:
            pass
        await in_thread(self._remove_cgroups, shim_pid)  # the kernel takes milliseconds for a memory cgroup
        record = self.record
        if record and not record.get("released"):
            if network := record.get("network"):
                self._context.addresses.release(network["address"])
            self._context.devices.release(record.get("devices") or {})
            record["released"] = True
            self.dir.write_record(record)

    def _remove_cgroups(self, shim_pid: int | None) -> None:
        support, uid = self._context.machine.cgroups, self.pod["metadata"]["uid"]
        for name in self.dir.container_names():
            cgroups.remove(support, uid, name, shim_pid=shim_pid)
        cgroups.remove_pod(support, shim_pid, uid=uid)
