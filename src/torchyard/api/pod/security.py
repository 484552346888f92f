"""Validation of security contexts of pods and containers."""

from __future__ import annotations

import re

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")
_PROFILE_LENGTH = 4095
_SYSCTL = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_is_net_bios = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_is_dns = re.compile(
    r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
).fullmatch
_is_sysctl = re.compile(_SYSCTL).fullmatch
_OWN_USERS = "when `hostUsers` is false"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def check_security_context(context: Object, at: str, errs: list[FieldError], *, host_users: bool) -> None:
    """Check the security context of a container."""
    checks.user_id(context.get("runAsUser"), f"{at}.runAsUser", errs)
    checks.user_id(context.get("runAsGroup"), f"{at}.runAsGroup", errs)
    proc = context.get("procMount")
    checks.optional_enum(proc, ("Default", "Unmasked"), f"{at}.procMount", errs)
    if proc == "Unmasked" and host_users:
        errs.append(field_errors.invalid(f"{at}.procMount", proc, "`hostUsers` must be false to use `Unmasked`"))
    _check_seccomp(context.get("seccompProfile"), f"{at}.seccompProfile", errs)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errs.append(field_errors.invalid(at, context, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errs.append(field_errors.invalid(at, context, detail))
    _check_windows(context.get("windowsOptions"), f"{at}.windowsOptions", errs)
    _check_app_armor(context.get("appArmorProfile"), f"{at}.appArmorProfile", errs)


def check_pod_security_context(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Check the security context of a pod."""
    context = spec.get("securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(field_errors.invalid(f"{at}.shareProcessNamespace", True, detail))
    if not context:
        return
    checks.user_id(context.get("fsGroup"), f"{at}.fsGroup", errs)
    checks.user_id(context.get("runAsUser"), f"{at}.runAsUser", errs)
    checks.user_id(context.get("runAsGroup"), f"{at}.runAsGroup", errs)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        checks.user_id(group, f"{at}.supplementalGroups[{index}]", errs)
    _check_sysctls(spec, context.get("sysctls") or [], f"{at}.sysctls", errs)
    policies = ("Always", "OnRootMismatch")
    checks.optional_enum(context.get("fsGroupChangePolicy"), policies, f"{at}.fsGroupChangePolicy", errs)
    _check_seccomp(context.get("seccompProfile"), f"{at}.seccompProfile", errs)
    _check_windows(context.get("windowsOptions"), f"{at}.windowsOptions", errs)
    _check_app_armor(context.get("appArmorProfile"), f"{at}.appArmorProfile", errs)
    groups = context.get("supplementalGroupsPolicy")
    checks.optional_enum(groups, ("Merge", "Strict"), f"{at}.supplementalGroupsPolicy", errs)
    labels = context.get("seLinuxChangePolicy")
    checks.optional_enum(labels, ("Recursive",), f"{at}.seLinuxChangePolicy", errs)


def _check_sysctls(spec: Object, sysctls: list[Object], at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        field, name = f"{at}[{index}].name", sysctl.get("name") or ""
        if not name:
            errs.append(field_errors.required(field))
        elif len(name) > 253 or not _is_sysctl(name):
            errs.append(
                field_errors.invalid(field, name, f"must have at most 253 characters and match regex {_SYSCTL}")
            )
        elif name in seen:
            errs.append(field_errors.duplicate(field, name))
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errs.append(field_errors.invalid(field, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            errs.append(field_errors.invalid(field, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)


def _check_seccomp(profile: Object | None, at: str, errs: list[FieldError]) -> None:
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        errs.append(field_errors.required(f"{at}.type", "type is required when seccompProfile is set"))
    else:
        checks.optional_enum(kind, _SECCOMP, f"{at}.type", errs)
    if kind == "Localhost":
        if local is None:
            errs.append(field_errors.required(f"{at}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            checks.local_descending_path(local, f"{at}.localhostProfile", errs)
    elif local is not None:
        detail = "can only be set when seccomp type is Localhost"
        errs.append(field_errors.invalid(f"{at}.localhostProfile", profile, detail))


def _check_app_armor(profile: Object | None, at: str, errs: list[FieldError]) -> None:
    if profile is None:
        return
    kind, local, field = profile.get("type") or "", profile.get("localhostProfile"), f"{at}.localhostProfile"
    if kind == "Localhost":
        if local is not None and local != local.strip():
            errs.append(field_errors.invalid(field, local, "must not be padded with whitespace"))
        elif not local:
            errs.append(field_errors.required(field, "must be set when AppArmor type is Localhost"))
        if local is not None and len(local) > _PROFILE_LENGTH:
            errs.append(field_errors.too_long(field, _PROFILE_LENGTH))
    elif kind in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            errs.append(field_errors.invalid(field, local, "can only be set when AppArmor type is Localhost"))
    elif not kind:
        errs.append(field_errors.required(f"{at}.type", "type is required when appArmorProfile is set"))
    else:
        errs.append(field_errors.not_supported(f"{at}.type", kind, _SECCOMP))


def _check_windows(options: Object | None, at: str, errs: list[FieldError]) -> None:
    """Check the Windows options. Windows pods do not run here, but their options are validated."""
    if not options:
        return
    name, user = options.get("gmsaCredentialSpecName"), options.get("runAsUserName")
    if name is not None:
        checks.report_problems(names.subdomain_problems(name), f"{at}.gmsaCredentialSpecName", name, errs)
    if options.get("gmsaCredentialSpec") == "":
        detail = "gmsaCredentialSpec cannot be an empty string"
        errs.append(field_errors.invalid(f"{at}.gmsaCredentialSpec", "", detail))
    if user is not None:
        checks.report_problems(
            [f"runAsUserName{problem}" for problem in _user_problems(user)], f"{at}.runAsUserName", user, errs
        )


def _user_problems(name: str) -> list[str]:
    """Return why a Windows user name (`user` or `domain\\user`) is not valid."""
    if not name:
        return [" cannot be an empty string"]
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return [" cannot contain control characters"]
    if name.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, backslash, user = name.rpartition("\\")
    problems = []
    if len(domain) >= 256:
        problems.append("'s Domain length must be under 256 characters")
    if backslash and not _is_net_bios(domain) and not _is_dns(domain):
        problems.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        problems.append("'s User cannot be empty")
    elif len(user) > 104:
        problems.append("'s User length must not be longer than 104 characters")
    if user and not user.strip(". "):
        problems.append("'s User cannot contain only periods or spaces")
    if any(letter in '"/\\:;|=,+*?<>@[]' for letter in user):
        problems.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return problems


def check_operating_system(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Check `os.name` and the fields that the operating system excludes."""
    system = spec.get("os")
    if system is None:
        return
    name = system.get("name")
    if not name:
        errs.append(field_errors.required(f"{at}.os.name"))
    elif name not in ("linux", "windows"):
        errs.append(field_errors.not_supported(f"{at}.os", name, ("linux", "windows")))
    elif name == "linux":
        detail = "windows options cannot be set for a linux pod"
        if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
            errs.append(field_errors.forbidden(f"{at}.securityContext.windowsOptions", detail))
        for kind in _CONTAINERS:
            for index, container in enumerate(spec.get(kind) or ()):
                if (container.get("securityContext") or {}).get("windowsOptions") is not None:
                    errs.append(field_errors.forbidden(f"{at}.{kind}[{index}].securityContext.windowsOptions", detail))


def check_host_users(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Check that a pod with its own user namespace does not share the host's namespaces."""
    if spec.get("hostUsers") is not False:
        return
    for field, label in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            errs.append(field_errors.forbidden(f"{at}.{label}", _OWN_USERS))
    for kind in _CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            if container.get("volumeDevices"):
                errs.append(field_errors.forbidden(f"{at}.{kind}[{index}].volumeDevices", _OWN_USERS))
