"""The handlers of virtual resources, by (group, plural)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access import reviews
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.managed_fields import record_update
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.subresources.binding import bind
from torchyard.apiserver.virtual import resource_metrics
from torchyard.apiserver.wire import body as bodies
from torchyard.apiserver.wire.negotiate import check_document

Handler = Callable[[ResourceHandler, RequestContext, Request], Awaitable[Response]]
Evaluate = Callable[[ResourceHandler, RequestContext, Object], Object]


def _review(evaluate: Evaluate) -> Handler:
    """A handler that returns a posted review with its status."""

    async def handle(resources: ResourceHandler, ctx: RequestContext, request: Request) -> Response:
        if ctx.verb != "create":
            raise errors.method_not_allowed()
        check_document(request.headers.get("Accept", ""))
        review = await ctx.compute(bodies.read_object, ctx, request.body, request.headers.get("Content-Type", ""))
        metadata = review.setdefault("metadata", {})
        if ctx.namespace:
            metadata["namespace"] = ctx.namespace
        endpoint = endpoint_of(ctx.resource, ctx.subresource)
        record_update(endpoint, None, review, manager=ctx.field_manager, now=to_rfc3339(ctx.now))
        review["status"] = evaluate(resources, ctx, review)
        # As upstream: these two are new objects, not the posted ones.
        if ctx.resource.plural == "selfsubjectrulesreviews":
            review["spec"], review["metadata"] = {}, {}
        elif ctx.resource.plural == "selfsubjectreviews":
            review["metadata"] = {"creationTimestamp": to_rfc3339(ctx.now)}
        return Response(201, orjson.dumps(review))

    return handle


VIRTUAL_HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "bindings"): bind,
    (resource_metrics.GROUP, "nodes"): resource_metrics.handle,
    (resource_metrics.GROUP, "pods"): resource_metrics.handle,
    ("authentication.k8s.io", "selfsubjectreviews"): _review(
        lambda _resources, ctx, _review: reviews.self_subject_review(ctx.user)
    ),
    ("authentication.k8s.io", "tokenreviews"): _review(
        lambda resources, _ctx, review: resources.access_control.authenticator.review_token(review.get("spec") or {})
    ),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): _review(
        lambda resources, ctx, review: reviews.self_subject_access_review(
            review, ctx.user, resources.access_control.authorizer
        )
    ),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): _review(
        lambda resources, ctx, review: reviews.self_subject_rules_review(
            review, ctx.user, resources.access_control.authorizer
        )
    ),
    ("authorization.k8s.io", "subjectaccessreviews"): _review(
        lambda resources, _ctx, review: reviews.subject_access_review(review, resources.access_control.authorizer)
    ),
    ("authorization.k8s.io", "localsubjectaccessreviews"): _review(
        lambda resources, ctx, review: reviews.local_subject_access_review(
            review, ctx.namespace, resources.access_control.authorizer
        )
    ),
}
