"""Resources that are answered and never stored: reviews, bindings, usage figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import orjson

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.apiserver import usage
from torchyard.apiserver.access import reviews
from torchyard.apiserver.call import Call
from torchyard.apiserver.exchange import Request, Response
from torchyard.apiserver.subresources.binding import bind
from torchyard.apiserver.wire import body as bodies

if TYPE_CHECKING:
    from torchyard.apiserver.server import Server

Handler = Callable[["Server", Call, Request], Awaitable[Response]]
Answer = Callable[["Server", Call, Object], Object]


def _reviewed(answer: Answer) -> Handler:
    """A handler that answers a posted review with its status filled in."""

    async def handle(server: Server, call: Call, request: Request) -> Response:
        if call.verb != "create":
            raise errors.method_not_allowed()
        review = bodies.read_object(call, request.body, request.headers.get("Content-Type", ""))
        review["status"] = answer(server, call, review)
        review.setdefault("metadata", {"creationTimestamp": None})
        return Response(201, orjson.dumps(review))

    return handle


VIRTUAL: dict[tuple[str, str], Handler] = {
    ("", "bindings"): bind,
    (usage.GROUP, "nodes"): usage.answer,
    (usage.GROUP, "pods"): usage.answer,
    ("authentication.k8s.io", "selfsubjectreviews"): _reviewed(
        lambda _server, call, _review: reviews.self_subject_review(call.user)
    ),
    ("authentication.k8s.io", "tokenreviews"): _reviewed(
        lambda server, _call, review: server.guard.authentication.review(review.get("spec") or {})
    ),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): _reviewed(
        lambda server, call, review: reviews.self_subject_access_review(review, call.user, server.guard.authorizer)
    ),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): _reviewed(
        lambda server, call, review: reviews.self_subject_rules_review(review, call.user, server.guard.authorizer)
    ),
    ("authorization.k8s.io", "subjectaccessreviews"): _reviewed(
        lambda server, _call, review: reviews.subject_access_review(review, server.guard.authorizer)
    ),
    ("authorization.k8s.io", "localsubjectaccessreviews"): _reviewed(
        lambda server, call, review: reviews.local_subject_access_review(
            review, call.namespace, server.guard.authorizer
        )
    ),
}
