"""A backend that forwards to an API server with a kubeconfig's credentials: the rights are those of its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qs, quote

from torchyard import __version__
from torchyard.api import errors
from torchyard.api.errors import PageNotFound, StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS
from torchyard.api.jobset import names as jobsets
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.samples import OPERATOR_NAMESPACE, proxied_path, samples_path
from torchyard.api.trainjob import names as trainjobs
from torchyard.console.cluster_usage import ClusterUsage
from torchyard.console.request import (
    ConsoleIdentity,
    ConsoleResponse,
    KubernetesRequest,
    SampleQuery,
)
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport

# The only caller: the person who started `yard console`.
Owner = Literal["owner"]
OWNER: Owner = "owner"

ReadHistory = Callable[[Client], Awaitable[list[Mapping[str, Any]]]]
_UNAUTHORIZED = 401
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# Nothing else of a response is passed on: no cookies, which pods may set through a proxy, no credentials, no caching.
# The pages compare times of objects with the API server's clock, not with that of this process.
PASSED_HEADERS = ("retry-after", "date")
# The jobs of which the operator keeps samples.
SAMPLED_RESOURCES = {
    f"{resource.plural}.{resource.group}": resource
    for resource in (
        JOBS,
        *(GroupVersionResource(each.GROUP, each.VERSION, each.PLURAL) for each in (pytorchjobs, jobsets, trainjobs)),
    )
}
_SAFE_TYPES = ("application/json", "text/plain", "application/yaml", "application/vnd.kubernetes.protobuf")


class ForwardingBackend:
    """`read_history` lists the jobs that have ended; `context` is the name that the pages show.

    The operator in `operator_namespace` may have curves of a cluster's jobs.
    """

    def __init__(
        self,
        transport: HttpTransport,
        *,
        context: str,
        namespace: str,
        read_history: ReadHistory,
        operator_namespace: str = OPERATOR_NAMESPACE,
    ) -> None:
        self._transport, self._context, self._read_history = transport, context, read_history
        self._operator_namespace, self._namespace = operator_namespace, namespace
        self._client = Client(transport, manager="yard-console")
        self._usage = ClusterUsage(self._client, namespace)
        self._is_plane: bool | None = None

    async def identity(self, caller: Owner) -> ConsoleIdentity:
        try:
            review = await self._client.raw(
                "POST", _REVIEW, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            )
        except StatusError as error:
            if error.status == _UNAUTHORIZED:
                raise self._credentials_refused() from error
            raise
        user = review["status"]["userInfo"]
        return {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "context": self._context,
            "plane": await self.is_plane(),
            "version": __version__,
            "namespace": self._namespace,
        }

    async def is_plane(self) -> bool:
        """Whether the API server is a plane's, which serves the console too."""
        if self._is_plane is None:
            version = await self._client.raw("GET", "/version")
            self._is_plane = "+torchyard." in version.get("gitVersion", "")
        return self._is_plane

    async def run(self) -> None:
        """Sample a cluster until cancelled. A plane does so itself."""
        if not await self.is_plane():
            await self._usage.run()

    async def kubernetes(self, caller: Owner, request: KubernetesRequest) -> ConsoleResponse:
        target = f"{request.path}?{request.query}" if request.query else request.path
        if request.method == "GET" and is_stream(request):
            opened = await self._transport.open_stream(target, accept=request.accept)
            content_type = safe_type(opened.headers.get("content-type", ""))
            if opened.status == _UNAUTHORIZED:
                await opened.chunks.aclose()
                raise self._credentials_refused()
            if opened.status >= 400:
                return ConsoleResponse(opened.status, b"".join([chunk async for chunk in opened.chunks]), content_type)
            return ConsoleResponse(opened.status, opened.chunks, content_type)
        response = await self._transport.request(
            request.method, target, body=request.body, content_type=request.content_type, accept=request.accept
        )
        if response.status == _UNAUTHORIZED:
            raise self._credentials_refused()
        headers = {name.title(): response.headers[name] for name in PASSED_HEADERS if name in response.headers}
        return ConsoleResponse(
            response.status, response.body, safe_type(response.headers.get("content-type", "")), headers
        )

    def _credentials_refused(self) -> StatusError:
        """The session with this process goes on, so the pages must not get a 401, which would sign them out."""
        return errors.unavailable(
            f"the API server of {self._context} no longer accepts the credentials of your kubeconfig (401);"
            " sign in to the cluster again, and these pages continue"
        )

    async def samples(self, caller: Owner, query: SampleQuery) -> dict[str, Any]:
        """The samples that the plane has; of a cluster, those of its operator and of this process."""
        parts = "/".join(quote(part, safe="") for part in query[:3])
        if await self.is_plane():
            return await self._client.raw("GET", f"/console/samples/{parts}?since={query.since}")
        own = self._usage.document(*query)
        stored = await self._operator_samples(query)
        if stored is None or not stored["series"]:
            return own
        names = {series["name"] for series in stored["series"]}
        others = [series for series in own["series"] if series["name"] not in names]
        return {**stored, "series": [*stored["series"], *others]}

    async def _operator_samples(self, query: SampleQuery) -> dict[str, Any] | None:
        """What the cluster's operator has kept of a job that the user may read; None without one."""
        resource = SAMPLED_RESOURCES.get(query.resource)
        if resource is None:
            return None
        try:
            obj = await self._client.get(resource, query.name, query.namespace)
            path = samples_path(query[:3], query.since, obj["metadata"]["uid"])
            return await self._client.raw("GET", proxied_path(self._operator_namespace, path))
        except (StatusError, PageNotFound):
            return None  # no operator, one without samples, or no right to ask it

    async def history(self, caller: Owner) -> list[Mapping[str, Any]]:
        if await self.is_plane():
            try:
                document = await self._client.raw("GET", "/console/history")
                return list(document["items"])
            except (PageNotFound, StatusError) as error:
                if error.status != 404:  # a plane of an earlier version
                    raise
        return await self._read_history(self._client)


def is_stream(request: KubernetesRequest) -> bool:
    """Whether the response may last, or be long."""
    if request.path.endswith("/log"):
        return True
    query = parse_qs(request.query, keep_blank_values=True)
    return query.get("watch", ["false"])[0].lower() not in ("0", "false")


def safe_type(content_type: str) -> str:
    """The type of a response; bytes for a type that a browser may run: a pod may have written the response."""
    if content_type.startswith(_SAFE_TYPES):
        return content_type
    return "application/octet-stream"
