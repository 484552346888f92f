"""The node agent: runs a worker for each pod bound to its node, and renews the Node object and its Lease.

It may be killed and started again at any time: pods run on under their shims, and the next agent adopts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from torchyard.api.cluster import node_messages as messages
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import ENDPOINT_SLICES, LEASES, NODES, PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339_micro
from torchyard.core.progress.reports import ProgressReport
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.supervisor import Part, run_parts
from torchyard.node import node_object
from torchyard.node.context import NodeContext
from torchyard.node.devices import nvidia
from torchyard.node.events import NodeEventRecorder
from torchyard.node.images import python
from torchyard.node.images.store import ImageStore
from torchyard.node.logs.progress import ProgressScanner
from torchyard.node.network import pod_routes
from torchyard.node.network.addresses import NodeAddresses, PodIPAllocator, listening_addresses
from torchyard.node.network.cluster_services import ClusterServices
from torchyard.node.network.dialer import ClusterDialer
from torchyard.node.network.outbound import OutboundRelay
from torchyard.node.pod import peers
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.pod.worker import PodWorker
from torchyard.node.resources import cgroups
from torchyard.node.resources.metrics import ResourceMetrics
from torchyard.node.runtime import machine_features
from torchyard.node.runtime.id_ranges import IdRangeAllocator
from torchyard.node.runtime.idmapped_mounts import MountProbe
from torchyard.node.runtime.root_templates import RootTemplates
from torchyard.node.settings import NodeSettings
from torchyard.node.shim import records
from torchyard.node.shim.client import ClusterNetwork, ZygoteClient
from torchyard.node.threads import in_thread

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ZygoteSettings

log = logging.getLogger(__name__)

LEASE_NAMESPACE, LEASE_SECONDS = "kube-node-lease", 40
_REGISTER_RETRY_SECONDS = 0.5
_LONGEST_WORKER_DELAY = 60.0
_STATUS_HEARTBEATS = 6  # the status is written once in so many heartbeats, and whenever a condition changes


class NodeAgent:
    """`run` until cancelled; `ready` is set when pods can start."""

    def __init__(
        self,
        client: Client,
        settings: NodeSettings,
        *,
        machine: machine_features.MachineFeatures | None = None,
        report_progress: Callable[[ProgressReport], None] | None = None,
    ) -> None:
        """`report_progress` gets what the pods of jobs print about their progress; None: their logs are not read."""
        self._client, self._settings = client, settings
        self.machine = machine or machine_features.detect()
        self.ready = asyncio.Event()
        self._devices = nvidia.find()
        for directory in (settings.root, settings.pods):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        admitted = [record for record in peers.all_records(settings.pods) if not record.get("released")]
        devices = [record.get("devices") or {} for record in admitted]
        network = settings.network.for_namespace_holder() if self.machine.network else None
        zygote_settings: ZygoteSettings = {
            "namespaces": self.machine.sandbox,
            "network": network,
            "pids": cgroups.pids_limit(self.machine.cgroups, settings.pod_pids_limit),
            "shifted_ids": self.machine.shifted_ids,
        }
        self.context = NodeContext(
            client=client,
            settings=settings,
            machine=self.machine,
            zygote=ZygoteClient(settings.root, zygote_settings),
            images=ImageStore(settings.images, python.find(settings.python)),
            addresses=PodIPAllocator(settings.network, settings.pods.iterdir()),
            devices=nvidia.DeviceAllocator(self._devices, devices),
            recorder=NodeEventRecorder(client, node=settings.name),
            host_ip=node_object.host_address(),
            ids=IdRangeAllocator(settings.pods.iterdir()) if self.machine.shifted_ids else None,
            mount_probe=MountProbe() if self.machine.shifted_ids else None,
            templates=RootTemplates(settings.root) if self.machine.sandbox else None,
            allocatable=node_object.capacity(settings, self._devices),
        )
        if self.context.templates:
            self.context.templates.remove_unused(settings.pods.glob("*/containers/*/*.launch"))
        self._pods = Informer(client, PODS, fields=f"spec.nodeName={settings.name}")
        self._services = Informer(
            client, SERVICES, indexes={"namespace": lambda service: [service["metadata"]["namespace"]]}
        )
        self._slices = Informer(client, ENDPOINT_SLICES)
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._worker_failures: dict[str, int] = {}  # by uid
        self.metrics = ResourceMetrics(settings.pods)
        self._progress = ProgressScanner(settings.pods, report_progress) if report_progress is not None else None
        self._node: Object = {}
        self._not_routed = ""  # why not, if the machine was to reach the pods
        self.dialer = ClusterDialer.of_node(
            settings.root,
            settings.network,
            has_network=self.machine.network,
            host_ip=self.context.host_ip,
            api=settings.api_address,
        )

    async def run(self) -> None:
        cgroups.prepare(self.machine.cgroups)
        await self.context.zygote.ensure()
        await self._route_pods()
        services = ClusterServices(
            self._settings.network,
            ClusterNetwork(self._settings.root) if self.machine.network else None,
            self._services,
            self._slices,
            recorder=self.context.recorder,
            addresses=NodeAddresses(
                self.context.host_ip,
                listening_addresses(self._settings.node_port_addresses, self.context.host_ip),
                self._settings.api_address,
            ),
            changed=self._names_changed,
        )
        self.context.names = services.records_in
        self.context.services = lambda namespace: self._services.by("namespace", namespace)
        self._pods.on_change(self._pod_changed)
        if self.machine.network:
            self._pods.on_change(lambda change, pod, _: services.pod_changed(pod, is_deleted=change == "DELETED"))
        await self._register_with_retry()
        try:
            parts: dict[str, Part] = {
                "events": self.context.recorder.run,
                "services": self._services.run,
                "endpointslices": self._slices.run,
                "pods": self._run_pods,
                "heartbeat": self._heartbeat,
                "status": self._refresh_status,
                "metrics": self.metrics.run,
                "proxy": services.run,
            }
            if self._progress is not None:
                parts["progress"] = self._progress.run
            if self.machine.network and not self.machine.outbound_missing:
                relay = OutboundRelay(
                    ClusterNetwork(self._settings.root), self._settings.network, redirect=services.machine_address
                )
                parts["outbound"] = relay.run
            await run_parts(**parts)
        finally:
            await self._leave()

    async def _route_pods(self) -> None:
        """The machine's routes to the pods, or none. Without them the node does everything else."""
        if not self._settings.route_pods:
            await in_thread(pod_routes.disconnect, self._settings.root)
            return
        try:
            if not self.machine.network:
                raise YardError(messages.pods_not_routed(messages.NO_POD_NETWORK), hint=messages.PODS_NOT_ROUTED_HINT)
            network = self._settings.network.for_namespace_holder()
            await in_thread(pod_routes.connect, self._settings.root, network)
        except YardError as error:
            log.warning("pods not routed: error=%r", str(error))
            self._not_routed = error.message

    async def _run_pods(self) -> None:
        """Pods start only after services are known, so that their hosts files are right from the start."""
        await asyncio.gather(self._services.synced.wait(), self._slices.synced.wait())
        await run_parts(informer=self._pods.run, orphans=self._adopt_or_remove)

    async def _adopt_or_remove(self) -> None:
        await self._pods.synced.wait()
        await self._remove_orphans()
        self.ready.set()
        await asyncio.Event().wait()

    def _pod_changed(self, change: str, pod: Object, _: Object | None) -> None:
        self._update_worker(change, pod)  # first: a pod must be stopped whatever becomes of its progress
        if self._progress is not None:
            self._progress.observe(change, pod)

    def _update_worker(self, change: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        running = self._workers.get(uid)
        if change == "DELETED":
            if running:
                running[0].deleted()
            return
        if running:
            running[0].update(pod)
            return
        worker = PodWorker(self.context, pod)
        task = asyncio.create_task(self._work(uid, worker))
        self._workers[uid] = (worker, task)

    async def _work(self, uid: str, worker: PodWorker) -> None:
        try:
            await worker.run()
        except asyncio.CancelledError:
            await worker.leave()
            raise
        except Exception:
            failures = self._worker_failures[uid] = self._worker_failures.get(uid, 0) + 1
            delay = min(2.0 ** min(failures - 1, 30), _LONGEST_WORKER_DELAY)
            log.exception("pod worker failed and is started again: uid=%s delay_seconds=%g", uid, delay)
            try:
                await worker.leave()
            except Exception:  # the pod gets its next worker all the same
                log.exception("pod worker not ended: uid=%s", uid)
            await asyncio.sleep(delay)
            self._workers.pop(uid, None)
            current = self._pods.get(worker.pod["metadata"]["namespace"], worker.pod["metadata"]["name"])
            if current and current["metadata"]["uid"] == uid:
                self._pod_changed("ADDED", current, None)
            else:
                self._worker_failures.pop(uid, None)
            return
        self._workers.pop(uid, None)
        self._worker_failures.pop(uid, None)

    async def _remove_orphans(self) -> None:
        """Tear down the pods that were deleted while no agent ran."""
        uids = {pod["metadata"]["uid"] for pod in self._pods.all()}
        for path in list(self._settings.pods.iterdir()):
            if path.name not in uids and path.name not in self._workers:
                record = records.read_pod(str(path))
                namespace, name = (record.get("namespace", ""), record.get("name", "")) if record else ("", "")
                metadata = {"uid": path.name, "namespace": namespace, "name": name}
                try:
                    await PodSandbox(self.context, {"metadata": metadata, "spec": {}}).tear_down()
                except YardError as error:
                    log.warning("pod directory not removed: path=%s error=%r", path, str(error))

    def usage_metrics(self, plural: str) -> list[Object]:
        """The objects of `kubectl top`, with the labels that it selects by."""
        if plural == "nodes":
            node_metrics = self.metrics.node(self._settings.name)
            node_metrics["metadata"]["labels"] = self._node["metadata"].get("labels") or {}
            return [node_metrics]
        pod_metrics = self.metrics.pods()
        for item in pod_metrics:
            metadata = item["metadata"]
            pod = self._pods.get(metadata["namespace"], metadata["name"])
            metadata["labels"] = (pod["metadata"].get("labels") if pod else None) or {}
        return pod_metrics

    def _names_changed(self, namespaces: set[str]) -> None:
        for worker, _ in self._workers.values():
            if worker.pod["metadata"]["namespace"] in namespaces:
                worker.names_changed()

    async def _register_with_retry(self) -> None:
        """The API server may start after the agent, or be down just now."""
        while True:
            try:
                await self._register()
            except YardError as error:
                log.warning("node registration failed: retry_in=%gs error=%r", _REGISTER_RETRY_SECONDS, str(error))
                await asyncio.sleep(_REGISTER_RETRY_SECONDS)
            else:
                return

    async def _register(self) -> None:
        """Create the Node, or update the existing one, which keeps its other labels and its taints."""
        node = node_object.node(self._settings, self.machine, self._devices, host_ip=self.context.host_ip)
        try:
            self._node = await self._client.create(NODES, node)
        except StatusError as error:
            if error.status != 409:
                raise
            patch = {"metadata": {"labels": node["metadata"]["labels"]}, "spec": node["spec"]}
            self._node = await self._client.patch(NODES, self._settings.name, patch)
        await self._write_node_status()
        self.context.recorder.node(self._node, messages.REASON_STARTING, messages.STARTING)
        if self._not_routed:
            self.context.recorder.node(self._node, messages.REASON_PODS_NOT_ROUTED, self._not_routed, kind="Warning")

    def _conditions(self) -> list[Object]:
        """The conditions of the Node as they were last written."""
        conditions: list[Object] = (self._node.get("status") or {}).get("conditions") or []
        return conditions

    def _changed_conditions(self) -> list[Object]:
        before = self._conditions()
        statuses = {condition["type"]: condition["status"] for condition in before}
        now = node_object.conditions(self._settings, self.machine, before=before)
        return [condition for condition in now if statuses.get(condition["type"]) != condition["status"]]

    async def _write_node_status(self) -> None:
        before = self._conditions()
        status = node_object.status(
            self._settings, self.machine, self._devices, host_ip=self.context.host_ip, before=before
        )
        patch = {"status": status}
        self._node = await self._client.patch(NODES, self._settings.name, patch, subresource="status")

    async def _refresh_status(self) -> None:
        while True:
            changed: list[Object] = []
            for _ in range(_STATUS_HEARTBEATS):
                await asyncio.sleep(self._settings.heartbeat_seconds)
                if changed := self._changed_conditions():
                    break
            try:
                await self._write_node_status()
            except YardError as error:
                log.warning("node status not written: error=%r", str(error))
                continue
            for condition in changed:
                reason = messages.EVENT_REASONS.get((condition["type"], condition["status"]))
                if reason:
                    text = messages.status_is_now(self._settings.name, reason)
                    self.context.recorder.node(self._node, reason, text)

    async def _heartbeat(self) -> None:
        while True:
            try:
                await self._renew_lease()
            except YardError as error:
                log.warning("node lease not renewed: error=%r", str(error))
            await asyncio.sleep(self._settings.heartbeat_seconds)

    async def _renew_lease(self) -> None:
        name = self._settings.name
        now = to_rfc3339_micro(datetime.now(UTC))
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, LEASE_NAMESPACE)
        except StatusError as error:
            if error.status != 404:
                raise
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._node["metadata"]["uid"]}
            metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            await self._client.create(LEASES, lease, LEASE_NAMESPACE)

    async def _leave(self) -> None:
        """Stop all workers; their pods run on."""
        for _, task in self._workers.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._workers.values()), return_exceptions=True)
