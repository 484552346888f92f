"""What is valid in webhook configurations and aggregated APIs."""

from __future__ import annotations

import base64
from urllib.parse import urlsplit

from torchyard.api import checks, faults, names, selectors
from torchyard.api.behaviour import Behaviour, Object
from torchyard.api.faults import Fault
from torchyard.api.stateful import StatefulBehaviour

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


def validate_webhooks(configuration: Object, *, mutating: bool) -> list[Fault]:
    found: list[Fault] = []
    seen: set[str] = set()
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        at, name = f"webhooks[{index}]", webhook.get("name") or ""
        _check_webhook(webhook, at, found, mutating=mutating)
        _check_reviews(webhook.get("admissionReviewVersions") or [], f"{at}.admissionReviewVersions", found)
        if name in seen:
            found.append(faults.duplicate(f"{at}.name", name))
        seen.add(name)
    return found


def _check_webhook(webhook: Object, at: str, found: list[Fault], *, mutating: bool) -> None:
    _check_name(webhook.get("name") or "", f"{at}.name", found)
    for index, rule in enumerate(webhook.get("rules") or ()):
        check_rule(rule, f"{at}.rules[{index}]", found)
    checks.choice(webhook.get("failurePolicy"), ("Fail", "Ignore"), f"{at}.failurePolicy", found)
    checks.choice(webhook.get("matchPolicy"), ("Equivalent", "Exact"), f"{at}.matchPolicy", found)
    effects = webhook.get("sideEffects")
    if effects is None:
        found.append(faults.required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun"))
    else:
        checks.choice(effects, ("None", "NoneOnDryRun"), f"{at}.sideEffects", found)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        found.append(faults.invalid(f"{at}.timeoutSeconds", seconds, detail))
    for name in ("namespaceSelector", "objectSelector"):
        found += selectors.validate_object(webhook.get(name), f"{at}.{name}")
    _check_client(webhook.get("clientConfig") or {}, f"{at}.clientConfig", found)
    if mutating:
        policies = ("IfNeeded", "Never")
        checks.choice(webhook.get("reinvocationPolicy"), policies, f"{at}.reinvocationPolicy", found)
    check_conditions(webhook.get("matchConditions") or [], f"{at}.matchConditions", found)


def _check_name(name: str, field: str, found: list[Fault]) -> None:
    if not name:
        found.append(faults.required(field))
    elif problems := names.subdomain_problems(name):
        checks.told(problems, field, name, found)
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        found.append(faults.invalid(field, name, detail))


def check_rule(rule: Object, at: str, found: list[Fault]) -> None:
    operations = rule.get("operations") or []
    if not operations:
        found.append(faults.required(f"{at}.operations"))
    _check_star(operations, f"{at}.operations", "operations", found)
    for index, operation in enumerate(operations):
        checks.choice(operation, _OPERATIONS, f"{at}.operations[{index}]", found)
    for name, shown in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            found.append(faults.required(f"{at}.{name}"))
        _check_star(values, f"{at}.{name}", shown, found)
        if name == "apiVersions":
            found.extend(faults.required(f"{at}.{name}[{index}]") for index, value in enumerate(values) if not value)
    _check_resources(rule.get("resources") or [], f"{at}.resources", found)
    checks.choice(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{at}.scope", found)


def _check_star(values: list[str], field: str, shown: str, found: list[Fault]) -> None:
    if "*" in values and len(values) > 1:
        found.append(faults.invalid(field, values, f"if '*' is present, must not specify other {shown}"))


def _check_resources(resources: list[str], at: str, found: list[Fault]) -> None:
    if not resources:
        found.append(faults.required(at))
    if "*/*" in resources and len(resources) > 1:
        found.append(faults.invalid(at, resources, "if '*/*' is present, must not specify other resources"))
        return
    for index, resource in enumerate(resources):
        field = f"{at}[{index}]"
        name, slash, part = resource.partition("/")
        if not resource:
            found.append(faults.required(field))
        elif slash:
            # what came before says this already
            wider = next((one for one in (f"{name}/*", f"*/{part}") if one in resources[:index]), "")
            if wider:
                detail = f"if '{wider}' is present, must not specify {resource}"
                found.append(faults.invalid(field, resource, detail))


def _check_client(client: Object, at: str, found: list[Fault]) -> None:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        found.append(faults.required(at, "exactly one of url or service is required"))
    elif url is not None:
        _check_url(url, f"{at}.url", found)
    elif service is not None:
        _check_service(service, f"{at}.service", found)


def _check_url(url: str, field: str, found: list[Fault]) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        found.append(faults.required(field, f"url must be a valid URL: {error}; {_URL_FORM}"))
        return
    if parts.scheme != "https":
        detail = f"'https' is the only allowed URL scheme; {_URL_FORM}"
        found.append(faults.invalid(field, parts.scheme, detail))
    if not parts.hostname:
        found.append(faults.invalid(field, parts.netloc, f"host must be specified; {_URL_FORM}"))
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        found.append(faults.invalid(field, user, "user information is not permitted in the URL"))
    if parts.fragment:
        found.append(faults.invalid(field, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append(faults.invalid(field, parts.query, "query parameters are not permitted in the URL"))


def _check_service(service: Object, at: str, found: list[Fault]) -> None:
    for name in ("name", "namespace"):
        if not service.get(name):
            found.append(faults.required(f"{at}.{name}"))
    port, path = service.get("port") or 0, service.get("path")
    if not 1 <= port <= 65535:
        detail = f"port is not valid: {checks.within(1, 65535)}"
        found.append(faults.invalid(f"{at}.port", port, detail))
    if path is not None:
        _check_path(path, f"{at}.path", found)


def _check_path(path: str, field: str, found: list[Fault]) -> None:
    if path == "/":
        return
    if not path.startswith("/"):
        found.append(faults.invalid(field, path, "must start with a '/'"))
    inner = path[1:].removesuffix("/")
    for index, segment in enumerate(inner.split("/")):
        if not segment:
            found.append(faults.invalid(field, path, f"segment[{index}] may not be empty"))
        else:
            problems = names.subdomain_problems(segment)
            checks.told([f"segment[{index}]: {one}" for one in problems], field, path, found)


def check_conditions(conditions: list[Object], at: str, found: list[Fault]) -> None:
    """Names and presence; whether an expression compiles is found out where it is run."""
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name = condition.get("name") or ""
        if not (condition.get("expression") or "").strip():
            found.append(faults.required(f"{at}[{index}].expression"))
        if not name:
            found.append(faults.required(f"{at}[{index}].name"))
        else:
            checks.told(names.qualified_name_problems(name), f"{at}[{index}].name", name, found)
            if name in seen:
                found.append(faults.duplicate(f"{at}[{index}].name", name))
            seen.add(name)


def _check_reviews(versions: list[str], field: str, found: list[Fault]) -> None:
    if not versions:
        found.append(faults.required(field, f"must specify one of {', '.join(_REVIEWS)}"))
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            found.append(faults.invalid(f"{field}[{index}]", version, "duplicate version"))
            continue
        checks.told(names.dns1035_problems(version), f"{field}[{index}]", version, found)
        seen.add(version)
    if not seen & set(_REVIEWS):
        detail = f"must include at least one of {', '.join(_REVIEWS)}"
        found.append(faults.invalid(field, versions, detail))


class ValidatingWebhookBehaviour(Behaviour):
    qualified_finalizers = False
    unconditional_update = False
    generation_fields = ("webhooks",)
    _mutating = False

    def default(self, obj: Object) -> None:
        default_webhooks(obj, mutating=self._mutating)

    def validate(self, obj: Object) -> list[Fault]:
        return validate_webhooks(obj, mutating=self._mutating)


class MutatingWebhookBehaviour(ValidatingWebhookBehaviour):
    _mutating = True


def validate_api_service(service: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = service.get("spec") or {}
    group, version, name = spec.get("group") or "", spec.get("version") or "", service["metadata"].get("name") or ""
    if name != f"{version}.{group}":
        detail = f'must be `spec.version+"."+spec.group`: {faults.shown(f"{version}.{group}")}'
        found.append(faults.invalid("metadata.name", name, detail))
    if not group:
        if version != "v1":
            detail = "only v1 may have an empty group and it better be legacy kube"
            found.append(faults.required("spec.group", detail))
    else:
        checks.told(names.subdomain_problems(group), "spec.group", group, found)
    checks.told(names.dns1035_problems(version), "spec.version", version, found)
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field) or 0
        if not 0 < value <= most:
            found.append(faults.invalid(f"spec.{field}", value, f"must be positive and less than {most}"))
    backend = spec.get("service")
    insecure = bool(spec.get("insecureSkipTLSVerify"))
    if backend is None:
        if spec.get("caBundle"):
            detail = "local APIServices may not have a caBundle"
            size = len(base64.b64decode(spec["caBundle"]))
            found.append(faults.invalid("spec.caBundle", f"{size} bytes", detail))
        if insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            found.append(faults.invalid("spec.insecureSkipTLSVerify", insecure, detail))
        return found
    for field in ("namespace", "name"):
        if not backend.get(field):
            found.append(faults.required(f"spec.service.{field}"))
    checks.port_number(backend.get("port") or 0, "spec.service.port", found)
    if insecure and spec.get("caBundle"):
        detail = "may not be true if caBundle is present"
        found.append(faults.invalid("spec.insecureSkipTLSVerify", insecure, detail))
    return found


class APIServiceBehaviour(StatefulBehaviour):
    qualified_finalizers = False
    name_rule = "path-segment"
    unconditional_update = False
    generation_fields = None

    def default(self, obj: Object) -> None:
        service = obj.setdefault("spec", {}).get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443

    def validate(self, obj: Object) -> list[Fault]:
        return validate_api_service(obj)
