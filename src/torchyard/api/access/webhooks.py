"""Validation of webhook configurations and APIServices."""

from __future__ import annotations

import base64
from urllib.parse import urlsplit

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy
from torchyard.api.strategy import Strategy

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_REVIEWS = ("v1", "v1beta1")
_URL_FORM = "desired format: https://host[/path]"


def default_webhooks(configuration: Object, *, mutating: bool) -> None:
    for webhook in configuration.get("webhooks") or ():
        for name, value in (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", 10)):
            if webhook.get(name) is None:
                webhook[name] = value
        for name in ("namespaceSelector", "objectSelector"):
            if webhook.get(name) is None:
                webhook[name] = {}
        if mutating and webhook.get("reinvocationPolicy") is None:
            webhook["reinvocationPolicy"] = "Never"
        for rule in webhook.get("rules") or ():
            if rule.get("scope") is None:
                rule["scope"] = "*"
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443


def validate_webhooks(configuration: Object, *, mutating: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        at, name = f"webhooks[{index}]", webhook.get("name") or ""
        _check_webhook(webhook, at, errs, mutating=mutating)
        check_reviews(webhook.get("admissionReviewVersions") or [], f"{at}.admissionReviewVersions", errs)
        if name in seen:
            errs.append(field_errors.duplicate(f"{at}.name", name))
        seen.add(name)
    return errs


def _check_webhook(webhook: Object, at: str, errs: list[FieldError], *, mutating: bool) -> None:
    _check_name(webhook.get("name") or "", f"{at}.name", errs)
    for index, rule in enumerate(webhook.get("rules") or ()):
        check_rule(rule, f"{at}.rules[{index}]", errs)
    checks.optional_enum(webhook.get("failurePolicy"), ("Fail", "Ignore"), f"{at}.failurePolicy", errs)
    checks.optional_enum(webhook.get("matchPolicy"), ("Equivalent", "Exact"), f"{at}.matchPolicy", errs)
    effects = webhook.get("sideEffects")
    if effects is None:
        errs.append(field_errors.required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun"))
    else:
        checks.optional_enum(effects, ("None", "NoneOnDryRun"), f"{at}.sideEffects", errs)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        errs.append(field_errors.invalid(f"{at}.timeoutSeconds", seconds, detail))
    for name in ("namespaceSelector", "objectSelector"):
        errs += selectors.validate_object(webhook.get(name), f"{at}.{name}")
    check_client(webhook.get("clientConfig") or {}, f"{at}.clientConfig", errs)
    if mutating:
        policies = ("IfNeeded", "Never")
        checks.optional_enum(webhook.get("reinvocationPolicy"), policies, f"{at}.reinvocationPolicy", errs)
    check_conditions(webhook.get("matchConditions") or [], f"{at}.matchConditions", errs)


def _check_name(name: str, field: str, errs: list[FieldError]) -> None:
    if not name:
        errs.append(field_errors.required(field))
    elif problems := names.subdomain_problems(name):
        checks.report_problems(problems, field, name, errs)
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        errs.append(field_errors.invalid(field, name, detail))


def check_rule(rule: Object, at: str, errs: list[FieldError]) -> None:
    operations = rule.get("operations") or []
    if not operations:
        errs.append(field_errors.required(f"{at}.operations"))
    _check_star(operations, f"{at}.operations", "operations", errs)
    for index, operation in enumerate(operations):
        checks.optional_enum(operation, _OPERATIONS, f"{at}.operations[{index}]", errs)
    for name, label in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            errs.append(field_errors.required(f"{at}.{name}"))
        _check_star(values, f"{at}.{name}", label, errs)
        if name == "apiVersions":
            errs.extend(
                field_errors.required(f"{at}.{name}[{index}]") for index, value in enumerate(values) if not value
            )
    _check_resources(rule.get("resources") or [], f"{at}.resources", errs)
    checks.optional_enum(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{at}.scope", errs)


def _check_star(values: list[str], field: str, label: str, errs: list[FieldError]) -> None:
    if "*" in values and len(values) > 1:
        errs.append(field_errors.invalid(field, values, f"if '*' is present, must not specify other {label}"))


def _check_resources(resources: list[str], at: str, errs: list[FieldError]) -> None:
    if not resources:
        errs.append(field_errors.required(at))
    if "*/*" in resources and len(resources) > 1:
        errs.append(field_errors.invalid(at, resources, "if '*/*' is present, must not specify other resources"))
        return
    earlier: set[str] = set()
    for index, resource in enumerate(resources):
        field = f"{at}[{index}]"
        name, slash, part = resource.partition("/")
        if not resource:
            errs.append(field_errors.required(field))
        elif slash:
            # an earlier entry already covers this one
            wider = next((pattern for pattern in (f"{name}/*", f"*/{part}") if pattern in earlier), "")
            if wider:
                detail = f"if '{wider}' is present, must not specify {resource}"
                errs.append(field_errors.invalid(field, resource, detail))
        earlier.add(resource)


def check_client(client: Object, at: str, errs: list[FieldError]) -> None:
    """Check where a webhook is reached: one of url and service."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        errs.append(field_errors.required(at, "exactly one of url or service is required"))
    elif url is not None:
        _check_url(url, f"{at}.url", errs)
    elif service is not None:
        _check_service(service, f"{at}.service", errs)


def _check_url(url: str, field: str, errs: list[FieldError]) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        errs.append(field_errors.required(field, f"url must be a valid URL: {error}; {_URL_FORM}"))
        return
    if parts.scheme != "https":
        detail = f"'https' is the only allowed URL scheme; {_URL_FORM}"
        errs.append(field_errors.invalid(field, parts.scheme, detail))
    if not parts.hostname:
        errs.append(field_errors.invalid(field, parts.netloc, f"host must be specified; {_URL_FORM}"))
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        errs.append(field_errors.invalid(field, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errs.append(field_errors.invalid(field, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errs.append(field_errors.invalid(field, parts.query, "query parameters are not permitted in the URL"))


def _check_service(service: Object, at: str, errs: list[FieldError]) -> None:
    for name in ("name", "namespace"):
        if not service.get(name):
            errs.append(field_errors.required(f"{at}.{name}"))
    port, path = service.get("port") or 0, service.get("path")
    if not 1 <= port <= 65535:
        detail = f"port is not valid: {checks.in_range(1, 65535)}"
        errs.append(field_errors.invalid(f"{at}.port", port, detail))
    if path is not None:
        _check_path(path, f"{at}.path", errs)


def _check_path(path: str, field: str, errs: list[FieldError]) -> None:
    if path in ("", "/"):
        return
    if not path.startswith("/"):
        errs.append(field_errors.invalid(field, path, "must start with a '/'"))
    inner = path[1:].removesuffix("/")
    for index, segment in enumerate(inner.split("/")):
        if not segment:
            errs.append(field_errors.invalid(field, path, f"segment[{index}] may not be empty"))
        else:
            problems = names.subdomain_problems(segment)
            checks.report_problems([f"segment[{index}]: {problem}" for problem in problems], field, path, errs)


def check_conditions(conditions: list[Object], at: str, errs: list[FieldError]) -> None:
    """Check that match conditions have names and expressions. The API server compiles the expressions."""
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name = condition.get("name") or ""
        if not (condition.get("expression") or "").strip():
            errs.append(field_errors.required(f"{at}[{index}].expression"))
        if not name:
            errs.append(field_errors.required(f"{at}[{index}].name"))
        else:
            checks.report_problems(names.qualified_name_problems(name), f"{at}[{index}].name", name, errs)
            if name in seen:
                errs.append(field_errors.duplicate(f"{at}[{index}].name", name))
            seen.add(name)


def check_reviews(versions: list[str], field: str, errs: list[FieldError]) -> None:
    """Check that one of the versions of a review is known."""
    if not versions:
        errs.append(field_errors.required(field, f"must specify one of {', '.join(_REVIEWS)}"))
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            errs.append(field_errors.invalid(f"{field}[{index}]", version, "duplicate version"))
            continue
        checks.report_problems(names.dns1035_problems(version), f"{field}[{index}]", version, errs)
        seen.add(version)
    if not seen & set(_REVIEWS):
        detail = f"must include at least one of {', '.join(_REVIEWS)}"
        errs.append(field_errors.invalid(field, versions, detail))


class ValidatingWebhookStrategy(Strategy):
    qualified_finalizers = False
    unconditional_update = False
    generation_fields = ("webhooks",)
    _mutating = False

    def default(self, obj: Object) -> None:
        default_webhooks(obj, mutating=self._mutating)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_webhooks(obj, mutating=self._mutating)


class MutatingWebhookStrategy(ValidatingWebhookStrategy):
    _mutating = True


def validate_api_service(service: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = service.get("spec") or {}
    group, version, name = spec.get("group") or "", spec.get("version") or "", service["metadata"].get("name") or ""
    if name != f"{version}.{group}":
        detail = f'must be `spec.version+"."+spec.group`: {field_errors.format_value(f"{version}.{group}")}'
        errs.append(field_errors.invalid("metadata.name", name, detail))
    if not group:
        if version != "v1":
            detail = "only v1 may have an empty group and it better be legacy kube"
            errs.append(field_errors.required("spec.group", detail))
    else:
        checks.report_problems(names.subdomain_problems(group), "spec.group", group, errs)
    checks.report_problems(names.dns1035_problems(version), "spec.version", version, errs)
    for field, maximum in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field) or 0
        if not 0 < value <= maximum:
            errs.append(field_errors.invalid(f"spec.{field}", value, f"must be positive and less than {maximum}"))
    backend = spec.get("service")
    insecure = bool(spec.get("insecureSkipTLSVerify"))
    if backend is None:
        if spec.get("caBundle"):
            detail = "local APIServices may not have a caBundle"
            size = len(base64.b64decode(spec["caBundle"]))
            errs.append(field_errors.invalid("spec.caBundle", f"{size} bytes", detail))
        if insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            errs.append(field_errors.invalid("spec.insecureSkipTLSVerify", insecure, detail))
        return errs
    for field in ("namespace", "name"):
        if not backend.get(field):
            errs.append(field_errors.required(f"spec.service.{field}"))
    checks.port_number(backend.get("port") or 0, "spec.service.port", errs)
    if insecure and spec.get("caBundle"):
        detail = "may not be true if caBundle is present"
        errs.append(field_errors.invalid("spec.insecureSkipTLSVerify", insecure, detail))
    return errs


class APIServiceStrategy(StatusSubresourceStrategy):
    status_keeps = OBJECT_META
    qualified_finalizers = False
    name_rule = "path-segment"
    unconditional_update = False
    generation_fields = None

    def default(self, obj: Object) -> None:
        service = obj.setdefault("spec", {}).get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_api_service(obj)
