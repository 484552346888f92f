"""Validation of object metadata (names, labels, annotations, finalizers, owners), with kube-apiserver's messages.

`validate_metadata` runs for every object that the server accepts, so the valid case costs one compiled pattern per
string; messages are built only on a mismatch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.strategy import NameRule

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_QUALIFIED_LENGTH = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH
ANNOTATIONS_SIZE = 256 * 1024
MANAGER_LENGTH = 128
SUBRESOURCE_LENGTH = 256

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"

# generated names have at most 63 characters, 5 of them random; the alphabet has no vowels and so spells no words
_RANDOM_LENGTH = 5
_GENERATED_BASE_LENGTH = 58
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_NAMES = len(_ALPHABET) ** _RANDOM_LENGTH

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_dns1035 = re.compile(_DNS1035).fullmatch
_is_qualified = re.compile(_QUALIFIED).fullmatch
_is_label_value = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?").fullmatch

_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _pattern(sentence: str, pattern: str, *examples: str) -> str:
    """Build the message about a pattern as upstream's `RegexError` does, including its double space."""
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {listed}regex used for validation is '{pattern}')"


_SUBDOMAIN_MESSAGE = _pattern(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_LABEL_MESSAGE = _pattern(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_DNS1035_MESSAGE = _pattern(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _DNS1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_QUALIFIED_EXAMPLES = ("MyName", "my.name", "123-abc")
_LABEL_VALUE_MESSAGE = _pattern(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _size(text: str) -> int:
    """Return the length in bytes, as Go counts it."""
    return len(text) if text.isascii() else len(text.encode())


def subdomain_problems(name: str) -> list[str]:
    """Return why `name` is not a DNS-1123 subdomain, or []."""
    if len(name) <= SUBDOMAIN_LENGTH and _is_subdomain(name):
        return []
    problems = [_too_long(SUBDOMAIN_LENGTH)] if _size(name) > SUBDOMAIN_LENGTH else []
    return problems if _is_subdomain(name) else [*problems, _SUBDOMAIN_MESSAGE]


def label_problems(name: str) -> list[str]:
    """Return why `name` is not a DNS-1123 label, or []."""
    if len(name) <= LABEL_LENGTH and _is_label(name):
        return []
    problems = [_too_long(LABEL_LENGTH)] if _size(name) > LABEL_LENGTH else []
    if _is_label(name):
        return problems
    return [*problems, "must not contain dots" if _is_subdomain(name) else _LABEL_MESSAGE]


def dns1035_problems(name: str) -> list[str]:
    """Return why `name` is not a DNS-1035 label (required of Services), or []."""
    if len(name) <= LABEL_LENGTH and _is_dns1035(name):
        return []
    problems = [_too_long(LABEL_LENGTH)] if _size(name) > LABEL_LENGTH else []
    return problems if _is_dns1035(name) else [*problems, _DNS1035_MESSAGE]


def path_segment_problems(name: str) -> list[str]:
    """Return why `name` is not a valid URL path segment, or []."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return _forbidden_characters(name)


def _forbidden_characters(name: str) -> list[str]:
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def qualified_name_problems(name: str) -> list[str]:
    """Return why `name` is not a qualified name (`[prefix/]name`), or []."""
    if len(name) <= _QUALIFIED_LENGTH and is_qualified_name(name):
        return []
    return _qualified_name_problems(name)


@lru_cache(maxsize=8192)
def is_qualified_name(name: str) -> bool:
    """Whether `name` is a qualified name (`[prefix/]name`). Cached, since keys recur; call it only with short texts."""
    return not _qualified_name_problems(name)


def _qualified_name_problems(name: str) -> list[str]:
    parts = name.split("/")
    if len(parts) > 2:
        sentence = _pattern(f"a qualified name {_QUALIFIED_RULE}", _QUALIFIED, *_QUALIFIED_EXAMPLES)
        return [f"{sentence} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend(f"prefix part {problem}" for problem in subdomain_problems(parts[0]))
    last = parts[-1]
    if not last:
        problems.append("name part must be non-empty")
    elif _size(last) > LABEL_LENGTH:
        problems.append(f"name part {_too_long(LABEL_LENGTH)}")
    if not _is_qualified(last):
        problems.append(_pattern(f"name part {_QUALIFIED_RULE}", _QUALIFIED, *_QUALIFIED_EXAMPLES))
    return problems


def label_value_problems(value: str) -> list[str]:
    """Return why `value` is not a label value, or []."""
    if _is_label_value(value):
        return []
    problems = [_too_long(LABEL_LENGTH)] if _size(value) > LABEL_LENGTH else []
    return problems if re.fullmatch(_LABEL_VALUE, value) else [*problems, _LABEL_VALUE_MESSAGE]


_NAME_PROBLEMS = {
    "subdomain": subdomain_problems,
    "label": label_problems,
    "service": dns1035_problems,
    "path-segment": path_segment_problems,
}


def name_problems(name: str, rule: NameRule, *, prefix: bool = False) -> list[str]:
    """Return why `name` breaks a kind's name rule. A prefix (`generateName`) may end in a dash."""
    if prefix and rule == "path-segment":
        return _forbidden_characters(name)  # what follows the prefix makes `.` another name
    if prefix and len(name) > 1 and name.endswith("-"):
        name = name[:-2] + "a"
    return _NAME_PROBLEMS[rule](name)


def generate_name(base: str, random: Random) -> str:
    """Return `base` with five random characters, at most 63 in total."""
    number, letters = int(random.random() * _RANDOM_NAMES), ""
    for _ in range(_RANDOM_LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[place]
    return base[:_GENERATED_BASE_LENGTH] + letters


def validate_labels(labels: Mapping[str, str] | None, field: str) -> list[FieldError]:
    """Validate a label map."""
    errs: list[FieldError] = []
    for key, value in (labels or {}).items():
        if len(key) > _QUALIFIED_LENGTH or not is_qualified_name(key):
            errs.extend(field_errors.invalid(field, key, problem) for problem in qualified_name_problems(key))
        if not _is_label_value(value):
            errs.extend(field_errors.invalid(field, value, problem) for problem in label_value_problems(value))
    return errs


def validate_annotations(annotations: Mapping[str, str] | None, field: str) -> list[FieldError]:
    """Validate an annotation map: keys as for labels but in any case, and a limit on the total size."""
    errs: list[FieldError] = []
    size = 0
    for key, value in (annotations or {}).items():
        if len(key) > _QUALIFIED_LENGTH or not is_qualified_name(key):
            errs.extend(field_errors.invalid(field, key, problem) for problem in qualified_name_problems(key.lower()))
        size += _size(key) + _size(value)
    if size > ANNOTATIONS_SIZE:
        errs.append(field_errors.too_long(field, ANNOTATIONS_SIZE))
    return errs


def validate_owners(owners: list[dict[str, Any]] | None, field: str) -> list[FieldError]:
    """Validate `ownerReferences`: complete, no Events, at most one controller."""
    errs: list[FieldError] = []
    controller = ""
    for owner in owners or ():
        api_version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        name = owner.get("name") or ""
        version = api_version.rpartition("/")[2] if api_version.count("/") < 2 else ""
        if not version:
            errs.append(field_errors.invalid(f"{field}.apiVersion", api_version, "version must not be empty"))
        if not kind:
            errs.append(field_errors.invalid(f"{field}.kind", kind, "must not be empty"))
        if not name:
            errs.append(field_errors.invalid(f"{field}.name", name, "must not be empty"))
        if not owner.get("uid"):
            errs.append(field_errors.invalid(f"{field}.uid", "", "must not be empty"))
        if kind == "Event" and api_version == "v1":
            errs.append(field_errors.invalid(field, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {kind}/{name}'
                )
                errs.append(field_errors.invalid(field, owners, detail))
            else:
                controller = f"{kind}/{name}"
    return errs


def validate_finalizers(finalizers: list[str] | None, field: str) -> list[FieldError]:
    """Validate finalizers by the rules that every kind has."""
    errs: list[FieldError] = []
    for name in finalizers or ():
        errs.extend(field_errors.invalid(field, name, problem) for problem in qualified_name_problems(name))
    if finalizers and "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        errs.append(field_errors.invalid(field, finalizers, detail))
    return errs


def _unqualified_finalizers(finalizers: list[str] | None, field: str) -> list[FieldError]:
    """Require a domain in each finalizer of a built-in kind that is not a standard one."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        field_errors.invalid(f"{field}[{index}]", name, detail)
        for index, name in enumerate(finalizers or ())
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def validate_managed_fields(entries: list[dict[str, Any]] | None, field: str) -> list[FieldError]:
    """Validate `managedFields` as sent by a client."""
    errs: list[FieldError] = []
    for index, entry in enumerate(entries or ()):
        at = f"{field}[{index}]"
        if entry.get("operation") not in ("Apply", "Update"):
            errs.append(
                field_errors.invalid(f"{at}.operation", entry.get("operation") or "", "must be `Apply` or `Update`")
            )
        if entry.get("fieldsType") not in (None, "", "FieldsV1"):
            errs.append(field_errors.invalid(f"{at}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        errs.extend(validate_field_manager(entry.get("manager") or "", f"{at}.manager"))
        if len(entry.get("subresource") or "") > SUBRESOURCE_LENGTH:
            errs.append(field_errors.too_long(f"{at}.subresource", SUBRESOURCE_LENGTH))
    return errs


def validate_field_manager(manager: str, field: str) -> list[FieldError]:
    """Validate the name of a field manager, in an object or in a query parameter."""
    if manager.isprintable() and len(manager) <= MANAGER_LENGTH:
        return []
    errs = [field_errors.too_long(field, MANAGER_LENGTH)] if len(manager) > MANAGER_LENGTH else []
    if not manager.isprintable():
        errs.append(field_errors.invalid(field, manager, "should only contain printable characters"))
    return errs


def validate_metadata(
    meta: Mapping[str, Any], *, namespaced: bool, name_rule: NameRule = "subdomain", built_in: bool = True
) -> list[FieldError]:
    """Validate the metadata of a new object whose name has been generated."""
    errs: list[FieldError] = []
    generated = meta.get("generateName")
    if generated:
        problems = name_problems(generated, name_rule, prefix=True)
        errs.extend(field_errors.invalid("metadata.generateName", generated, problem) for problem in problems)
    name = meta.get("name")
    if not name:
        errs.append(field_errors.required("metadata.name", "name or generateName is required"))
    else:
        problems = name_problems(name, name_rule)
        errs.extend(field_errors.invalid("metadata.name", name, problem) for problem in problems)
    namespace = meta.get("namespace")
    if namespaced:
        if not namespace:
            errs.append(field_errors.required("metadata.namespace"))
        else:
            problems = label_problems(namespace)
            errs.extend(field_errors.invalid("metadata.namespace", namespace, problem) for problem in problems)
    elif namespace:
        errs.append(field_errors.forbidden("metadata.namespace", "not allowed on this type"))
    if (meta.get("generation") or 0) < 0:
        errs.append(field_errors.invalid("metadata.generation", meta["generation"], NOT_NEGATIVE))
    errs += _validate_maps(meta)
    if finalizers := meta.get("finalizers"):
        errs += validate_finalizers(finalizers, "metadata.finalizers")
        if built_in:
            errs += _unqualified_finalizers(finalizers, "metadata.finalizers")
    return errs


def _validate_maps(meta: Mapping[str, Any]) -> list[FieldError]:
    """Validate what create and update have in common: labels, annotations, owners, managed fields."""
    errs: list[FieldError] = []
    if labels := meta.get("labels"):
        errs += validate_labels(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        errs += validate_annotations(annotations, "metadata.annotations")
    if owners := meta.get("ownerReferences"):
        errs += validate_owners(owners, "metadata.ownerReferences")
    if managed := meta.get("managedFields"):
        errs += validate_managed_fields(managed, "metadata.managedFields")
    return errs


_IMMUTABLE_FIELDS = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def validate_metadata_update(
    new: Mapping[str, Any], old: Mapping[str, Any], *, built_in: bool = True, name_rule: NameRule = "path-segment"
) -> list[FieldError]:
    """Validate an update of metadata. The server has filled in the fields that a client may omit (uid, times).

    `name_rule` is that of `generateName`, the only part of the name that may change.
    """
    errs: list[FieldError] = []
    generated = new.get("generateName")
    if generated and generated != old.get("generateName"):
        problems = name_problems(generated, name_rule, prefix=True)
        errs.extend(field_errors.invalid("metadata.generateName", generated, problem) for problem in problems)
    finalizers = new.get("finalizers") or []
    if old.get("deletionTimestamp"):
        added = sorted(set(finalizers) - set(old.get("finalizers") or ()))
        if added:
            named = ", ".join(field_errors.format_value(name) for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{named}}}"
            )
            errs.append(field_errors.forbidden("metadata.finalizers", detail))
    if not new.get("resourceVersion"):
        errs.append(field_errors.invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        errs.append(field_errors.invalid("metadata.generation", new.get("generation") or 0, "must not be decremented"))
    errs.extend(
        field_errors.invalid(f"metadata.{name}", new.get(name), IMMUTABLE)
        for name in _IMMUTABLE_FIELDS
        if new.get(name) != old.get(name)
    )
    # identical values were validated when they were written
    errs += _validate_maps({name: value for name, value in new.items() if value is not old.get(name)})
    if finalizers:
        errs += validate_finalizers(finalizers, "metadata.finalizers")
        if built_in:
            errs += _unqualified_finalizers(finalizers, "metadata.finalizers")
    return errs
