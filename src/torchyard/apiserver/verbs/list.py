"""list: the objects of a resource, whole or in pages of one consistent snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from torchyard.api import errors, field_errors
from torchyard.apiserver.registry.catalog import collection_key
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.computation import compute
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.errors import Compacted
from torchyard.apiserver.store.watch import Filter
from torchyard.apiserver.verbs.continue_token import ListStart, read_token, write_token
from torchyard.apiserver.verbs.selection import Selection, select

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)
# Objects whose webhook is called before the next ones are looked at: a page may need no more of them.
_CONVERTED_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class Page:
    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


async def list_records(registry: Registry, ctx: RequestContext) -> Page:
    query = ctx.query
    if "sendInitialEvents" in query:
        error = field_errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        raise errors.invalid("ListOptions", "meta.k8s.io", "", [error])
    ctx.size = max(ctx.size, len(query.get("labelSelector")) + len(query.get("fieldSelector")))
    selection = await ctx.compute(select, ctx)
    limit = max(query.number("limit"), 0)
    start = _start(registry, ctx, selection)
    try:
        return await _page(registry, ctx, selection, start, limit)
    except Compacted as error:
        if not query.get("continue"):
            raise errors.expired(f"The resourceVersion for the provided list is too old. {error.message}") from error
        # As upstream: the client may continue with this token, from a later snapshot.
        token = write_token(ListStart(-1, start.after))
        raise errors.expired(CONTINUE_EXPIRED, continue_token=token) from error


async def _page(registry: Registry, ctx: RequestContext, selection: Selection, start: ListStart, limit: int) -> Page:
    revision = registry.store.revision if start.revision < 0 else start.revision
    prefix = collection_key(ctx.resource)
    after = prefix + start.after if start.after else ""
    matches = selection.matches
    if not limit and not after and matches is None and revision == registry.store.revision:
        collection = registry.store.collection(prefix)
        is_whole = selection.prefix == prefix or not ctx.resource.namespaced
        return Page(collection.all() if is_whole else list(collection.below(selection.prefix)), revision)
    matching = registry.store.snapshot(revision, selection.prefix, after=after)
    if matches is not None:
        select_records = _select_converted if ctx.resource.has_conversion_webhook else _select
        matching = iter(await select_records(registry, ctx, list(matching), matches, limit))
    if not limit:
        return Page(list(matching), revision)
    records = list(islice(matching, limit + 1))
    if len(records) <= limit:
        return Page(records, revision)
    # With a selector, the number of remaining objects is unknown without reading all of them.
    remaining = None if matches is not None else 1 + sum(1 for _ in matching)
    token = write_token(ListStart(revision, records[limit - 1].key.removeprefix(prefix)))
    return Page(records[:limit], revision, token, remaining)


async def _select(
    registry: Registry, ctx: RequestContext, candidates: list[Record], matches: Filter, limit: int
) -> list[Record]:
    """The first `limit` and one records that match, or all of them if `limit` is 0."""
    # the objects are not decoded, as a rule: a match costs about as much as reading a hundred bytes of JSON
    return await compute(
        len(candidates) * 100, lambda: list(islice(filter(matches, candidates), limit + 1 if limit else None))
    )


async def _select_converted(
    registry: Registry, ctx: RequestContext, candidates: list[Record], matches: Filter, limit: int
) -> list[Record]:
    """As `_select`, of objects that a webhook converts: the selectors apply to the version of the client."""
    selected: list[Record] = []
    step = max(limit, _CONVERTED_TOGETHER)
    for start in range(0, len(candidates), step):
        stored = candidates[start : start + step]
        converted = await registry.converter.to_version(ctx.resource, stored, cached=True)
        selected += [record for record, view in zip(stored, converted, strict=True) if matches(view)]
        if limit and len(selected) > limit:
            return selected[: limit + 1]
    return selected


def parse_revision(text: str, *, prefix: str = "") -> int:
    """A resource version as a number; 400 for anything else."""
    if not text.isascii() or not text.isdigit():
        reason = "invalid syntax"
    elif len(text.lstrip("0")) > 20 or int(text) >= 1 << 64:
        reason = "value out of range"
    else:
        return int(text)
    error = field_errors.invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": {reason}')
    raise errors.bad_request(f"{prefix}{error}")


def _start(registry: Registry, ctx: RequestContext, selection: Selection) -> ListStart:
    """Where a list starts: at a continue token, at a given revision, or at the present."""
    query = ctx.query
    version, match, token = query.get("resourceVersion"), query.get("resourceVersionMatch"), query.get("continue")
    _check_match(version, match, token)
    if token:
        start = read_token(token)
        if version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        return start
    if version in ("", "0"):
        return ListStart(-1, "")
    revision = parse_revision(version, prefix="invalid resource version: ")
    if revision > registry.store.revision:
        raise too_large_version(revision, registry.store.revision)
    # A limit without a match rule also means "exactly" for a real server; otherwise "not older than".
    is_exact = match == "Exact" or (not match and query.get("limit") not in ("", "0"))
    return ListStart(revision if is_exact else -1, "")


def too_large_version(requested: int, current: int) -> errors.StatusError:
    message = f"Too large resource version: {requested}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return errors.StatusError(504, "Timeout", f"Timeout: {message}", details=details, headers={"Retry-After": "1"})


def _check_match(version: str, match: str, token: str) -> None:
    if not match:
        return
    errs: list[field_errors.FieldError] = []
    field = "resourceVersionMatch"
    if token:
        errs.append(field_errors.forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    if not version:
        errs.append(
            field_errors.forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if match not in ("Exact", "NotOlderThan"):
        errs.append(field_errors.not_supported(field, match, ["Exact", "NotOlderThan", ""]))
    elif match == "Exact" and version == "0":
        errs.append(field_errors.forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if errs:
        raise errors.invalid("ListOptions", "meta.k8s.io", "", errs)
