"""log, exec, attach, portforward: what only the node can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.api import errors
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.route import Route
from torchyard.apiserver.streams.log_options import log_options
from torchyard.apiserver.streams.pods import PLAIN, begun, choose_container
from torchyard.apiserver.verbs.get import find

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server


async def stream(server: Server, call: Call, request: Request, _route: Route) -> Response:
    """Hand the request to the node agent of this plane, if the pod is on a node and there is one."""
    if call.subresource == "log":
        # as upstream: what is asked for is looked at before the pod is
        options = log_options(request.query, call.name)
    pod = find(server.api, call).object()
    if call.subresource != "portforward":
        # as upstream: a container that does not exist is refused before a node that does not
        choose_container(pod, request.query.get("container"), init=True)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node and call.subresource == "log":
        own = server.api.own_logs.get((call.namespace, call.name))
        if own is None:
            return Response(204)  # as upstream: nothing was written yet
        return Response(body=await begun(own(options)), content_type=PLAIN)
    if not node:
        raise errors.bad_request(f"pod {call.name} does not have a host assigned")
    streams = server.api.streams
    if streams is None:
        raise errors.not_implemented(f"{call.subresource} without a node agent")
    return await streams.answer(call, request, pod)
