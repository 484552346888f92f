"""log, exec, attach, portforward: streams that the node serves."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.streams.log_options import log_options
from torchyard.apiserver.streams.pod_handler import TEXT_PLAIN, await_first_chunk, choose_container
from torchyard.apiserver.verbs.get import find

_PORT_DIGITS = 5


async def stream(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
    """Pass the request to the node agent of this plane, if there is one and the pod is assigned to it."""
    if ctx.subresource == "log":
        # as upstream: the options are checked before the pod
        options = log_options(request.query, ctx.name)
    else:
        registry = resources.registry
        await registry.admission.review(registry, ctx, "CONNECT", _connect_options(ctx))
    pod = find(resources.registry, ctx).object()
    if ctx.subresource != "portforward":
        # as upstream: the container is checked before the node
        choose_container(pod, request.query.get("container"), init=True)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node and ctx.subresource == "log":
        own = resources.registry.own_logs.get((ctx.namespace, ctx.name))
        if own is None:
            return Response(204)  # as upstream: nothing was written yet
        return Response(body=await await_first_chunk(own(options)), content_type=TEXT_PLAIN)
    if not node:
        raise errors.bad_request(f"pod {ctx.name} does not have a host assigned")
    streams = resources.registry.streams
    if streams is None:
        raise errors.not_implemented(f"{ctx.subresource} without a node agent")
    return await streams.handle(ctx, request, pod)


def _connect_options(ctx: RequestContext) -> Object:
    """The options of a connection as the object that webhooks and policies see."""
    gvk, query = ctx.resource.subresources[ctx.subresource].gvk, ctx.query
    options: Object = {"kind": gvk.kind, "apiVersion": gvk.api_version}
    if ctx.subresource == "portforward":
        texts = [port for value in query.all("ports") for port in value.split(",")]
        ports = [int(port) for port in texts if port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS]
        return {**options, **({"ports": ports} if ports else {})}
    options |= {name: True for name in ("stdin", "stdout", "stderr", "tty") if query.flag(name)}
    if container := query.get("container"):
        options["container"] = container
    if ctx.subresource == "exec":
        options["command"] = query.all("command")
    return options
