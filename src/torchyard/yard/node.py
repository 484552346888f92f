"""The plane's own node: its agent, and the streams and usage that the API server gets from it."""

from __future__ import annotations

import asyncio

from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.streams.pod_handler import PodStreamHandler
from torchyard.kube.client import Client
from torchyard.node.agent import NodeAgent
from torchyard.node.resources.cgroups import default_pids_limit
from torchyard.node.settings import NodeSettings
from torchyard.node.streams import NodeStreams
from torchyard.yard.history import HistoryStore
from torchyard.yard.python_choice import chosen
from torchyard.yard.settings import PlaneSettings


def node_settings(settings: PlaneSettings, port: int) -> NodeSettings:
    labels = {"nvidia.com/gpu.product": settings.gpu_product} if settings.gpu_product else {}
    return NodeSettings(
        root=settings.node_root,
        private=settings.state,
        claims=settings.volumes,
        name=settings.node_name,
        python=chosen(settings),
        engine=settings.engine,
        kept_logs=HistoryStore(settings.history).logs if settings.history_days else None,
        api_address=(settings.host, port),
        labels=labels,
        node_port_addresses=settings.node_port_addresses,
        route_pods=settings.route_pods,
        pod_pids_limit=default_pids_limit() if settings.pod_pids_limit is None else settings.pod_pids_limit,
    )


async def make_agent(settings: NodeSettings, client: Client, registry: Registry) -> NodeAgent:
    """Inspect the machine and connect the node to the API server. The agent is not running yet."""
    registry.streams = PodStreamHandler(NodeStreams(settings.pods))
    agent = await asyncio.to_thread(NodeAgent, client, settings, report_progress=registry.progress.publish)
    registry.usage = agent
    registry.dialer = agent.dialer.connect
    return agent
