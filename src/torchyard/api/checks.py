"""Checks that many kinds share, with kube-apiserver's messages.

Each check appends to `errs`, so that the validator of a large object builds a single list. On the path of every pod
the caller compares first and calls a check only when the value looks wrong.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from torchyard.api import field_errors, names
from torchyard.api.field_errors import FieldError

MAX_INT32 = 2**31 - 1
NOT_POSITIVE = "must be greater than zero"
FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")

is_config_key = re.compile(r"[-._a-zA-Z0-9]{1,253}").fullmatch
is_env_name = re.compile(r"[ -<>-~]+").fullmatch
_is_header = re.compile(r"[-A-Za-z0-9]+").fullmatch
_is_percent = re.compile(r"[0-9]+%").fullmatch
_is_port_name = re.compile(r"(?=.{1,15}$)(?=[-0-9]*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_is_port_characters = re.compile(r"[-a-z0-9]+").fullmatch
_is_url_path = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+").fullmatch
_has_letter = re.compile(r"[a-z]").search


def in_range(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def repetitions(values: Iterable[Any]) -> Iterator[bool]:
    """Yield for each value whether an equal one precedes it. The values are JSON, in any number."""
    seen: set[Any] = set()
    for value in values:
        key = orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if isinstance(value, dict | list) else value
        yield key in seen
        seen.add(key)


def nonnegative(value: int | None, field: str, errs: list[FieldError]) -> None:
    if value is not None and value < 0:
        errs.append(field_errors.invalid(field, value, names.NOT_NEGATIVE))


def nonnegative_fields(holder: Mapping[str, Any], fields: Iterable[str], at: str, errs: list[FieldError]) -> None:
    for name in fields:
        nonnegative(holder.get(name), f"{at}.{name}", errs)


def report_problems(problems: Iterable[str], field: str, value: Any, errs: list[FieldError]) -> None:
    """Append one error per problem of a name."""
    errs.extend(field_errors.invalid(field, value, problem) for problem in problems)


def required_enum(value: Any, allowed: Collection[str], field: str, errs: list[FieldError]) -> None:
    """Require one of the allowed values."""
    if value in allowed:
        return
    errs.append(field_errors.not_supported(field, value, allowed) if value else field_errors.required(field))


def optional_enum(value: Any, allowed: Collection[str], field: str, errs: list[FieldError]) -> None:
    """Allow an absent value, or one of the allowed values."""
    if value is not None and value not in allowed:
        errs.append(field_errors.not_supported(field, value, allowed))


def immutable(new: Any, old: Any, field: str, errs: list[FieldError]) -> None:
    if new != old:
        errs.append(field_errors.invalid(field, new, names.IMMUTABLE))


def port_number(value: int, field: str, errs: list[FieldError]) -> None:
    if not 1 <= value <= 65535:
        errs.append(field_errors.invalid(field, value, in_range(1, 65535)))


def port_name_problems(name: str) -> list[str]:
    if _is_port_name(name):
        return []
    problems = []
    if len(name) > 15:
        problems.append("must be no more than 15 characters")
    if not _is_port_characters(name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name and "-" in (name[0], name[-1]):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_number_or_name(port: int | str | None, field: str, errs: list[FieldError]) -> None:
    if isinstance(port, str):
        report_problems(port_name_problems(port), field, port, errs)
    else:
        port_number(port or 0, field, errs)


def config_key_problems(key: str) -> list[str]:
    """Return why a key is not valid in a ConfigMap or a Secret."""
    problems = ["must be no more than 253 characters"] if len(key) > 253 else []
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


ENV_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def header_name(name: str, field: str, errs: list[FieldError]) -> None:
    if not _is_header(name):
        detail = (
            "a valid HTTP header must consist of alphanumeric characters or '-' "
            "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
        )
        errs.append(field_errors.invalid(field, name, detail))


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address as leniently as upstream does: leading zeros are decimal, zones are not allowed."""
    if "%" in text:
        return None
    try:
        if ":" not in text:
            parts = text.split(".")
            if not all(part.isascii() and part.isdigit() for part in parts):
                return None
            text = ".".join(str(int(part)) for part in parts)
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def unmapped(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that an address such as ::ffff:127.0.0.1 stands for: connections go there."""
    return getattr(address, "ipv4_mapped", None) or address


def ip(text: str, field: str, errs: list[FieldError]) -> bool:
    """Return whether the text is an IP address; append an error if it is not."""
    if parse_ip(text) is not None:
        return True
    detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    errs.append(field_errors.invalid(field, text, detail))
    return False


_is_prefix_length = re.compile(r"[0-9]{1,3}", re.ASCII).fullmatch


def cidr(text: str, field: str, errs: list[FieldError]) -> bool:
    address, slash, length = text.partition("/")
    parsed = parse_ip(address)
    if parsed is not None and slash and _is_prefix_length(length) and int(length) <= parsed.max_prefixlen:
        return True
    detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    errs.append(field_errors.invalid(field, text, detail))
    return False


def non_special_ip(text: str, field: str, errs: list[FieldError]) -> None:
    """Require an address that other hosts can reach, as endpoints and external IPs must be."""
    address = parse_ip(text)
    if address is None:
        errs.append(field_errors.invalid(field, text, "must be a valid IP address"))
        return
    address = unmapped(address)
    if address.is_unspecified:
        errs.append(field_errors.invalid(field, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        errs.append(field_errors.invalid(field, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        errs.append(field_errors.invalid(field, text, detail))
    if address.is_multicast and str(address).startswith(("224.0.0.", "ff02:")):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errs.append(field_errors.invalid(field, text, detail))


def local_descending_path(path: str, field: str, errs: list[FieldError]) -> None:
    """Require a relative path without `..`, as upstream's validateLocalDescendingPath does."""
    if path.startswith("/"):
        errs.append(field_errors.invalid(field, path, "must be a relative path"))
    no_backsteps(path, field, errs)


def no_backsteps(path: str, field: str, errs: list[FieldError]) -> None:
    if ".." in path and ".." in path.split("/"):
        errs.append(field_errors.invalid(field, path, "must not contain '..'"))


def local_non_reserved_path(path: str, field: str, errs: list[FieldError]) -> None:
    """Require a path that does not clash with the `..data` files that a projected volume creates."""
    local_descending_path(path, field, errs)
    if path.startswith("..") and not path.startswith("../"):
        errs.append(field_errors.invalid(field, path, "must not start with '..'"))


def file_mode(mode: int | None, field: str, errs: list[FieldError]) -> None:
    if mode is not None and not 0 <= mode <= 0o777:
        errs.append(field_errors.invalid(field, mode, FILE_MODE))


def int_or_percent(value: int | str, field: str, errs: list[FieldError]) -> None:
    """Require a non-negative integer or a percentage."""
    if isinstance(value, str):
        if not _is_percent(value):
            detail = (
                "a valid percent string must be a numeric string followed by an ending '%' "
                "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            )
            errs.append(field_errors.invalid(field, value, detail))
    else:
        nonnegative(value, field, errs)


def percent_value(value: int | str) -> int:
    """Return the number in `3` or `30%`, and 0 for any other text."""
    if isinstance(value, str):
        # int() rejects thousands of digits; nine are more than any limit
        return int(value[:-1].lstrip("0")[:9] or 0) if _is_percent(value) else 0
    return value


def at_most_100_percent(value: int | str, field: str, errs: list[FieldError]) -> None:
    if isinstance(value, str) and percent_value(value) > 100:
        errs.append(field_errors.invalid(field, value, "must not be greater than 100%"))


def user_id(value: int | None, field: str, errs: list[FieldError]) -> None:
    if value is not None and not 0 <= value <= MAX_INT32:
        errs.append(field_errors.invalid(field, value, in_range(0, MAX_INT32)))


def domain_path(text: str, field: str, errs: list[FieldError]) -> None:
    """Require a domain-prefixed path such as acme.io/foo."""
    domain, slash, path = text.partition("/")
    if not text:
        errs.append(field_errors.required(field))
    elif not slash or not domain or not path:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        errs.append(field_errors.invalid(field, text, detail))
    else:
        report_problems(names.subdomain_problems(domain), field, domain, errs)
        if not _is_url_path(path):
            detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
            errs.append(field_errors.invalid(field, path, detail))
