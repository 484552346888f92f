"""Security contexts of pods and containers."""

from __future__ import annotations

import re

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

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


def check_security_context(context: Object, at: str, found: list[Fault], *, host_users: bool) -> None:
    """A container's own."""
    checks.user_id(context.get("runAsUser"), f"{at}.runAsUser", found)
    checks.user_id(context.get("runAsGroup"), f"{at}.runAsGroup", found)
    proc = context.get("procMount")
    checks.choice(proc, ("Default", "Unmasked"), f"{at}.procMount", found)
    if proc == "Unmasked" and host_users:
        found.append(faults.invalid(f"{at}.procMount", proc, "`hostUsers` must be false to use `Unmasked`"))
    _check_seccomp(context.get("seccompProfile"), f"{at}.seccompProfile", found)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            found.append(faults.invalid(at, context, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.append(faults.invalid(at, context, detail))
    _check_windows(context.get("windowsOptions"), f"{at}.windowsOptions", found)
    _check_app_armor(context.get("appArmorProfile"), f"{at}.appArmorProfile", found)


def check_pod_security_context(spec: Object, at: str, found: list[Fault]) -> None:
    """The pod's."""
    context = spec.get("securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(faults.invalid(f"{at}.shareProcessNamespace", True, detail))
    if not context:
        return
    checks.user_id(context.get("fsGroup"), f"{at}.fsGroup", found)
    checks.user_id(context.get("runAsUser"), f"{at}.runAsUser", found)
    checks.user_id(context.get("runAsGroup"), f"{at}.runAsGroup", found)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        checks.user_id(group, f"{at}.supplementalGroups[{index}]", found)
    _check_sysctls(spec, context.get("sysctls") or [], f"{at}.sysctls", found)
    policies = ("Always", "OnRootMismatch")
    checks.choice(context.get("fsGroupChangePolicy"), policies, f"{at}.fsGroupChangePolicy", found)
    _check_seccomp(context.get("seccompProfile"), f"{at}.seccompProfile", found)
    _check_windows(context.get("windowsOptions"), f"{at}.windowsOptions", found)
    _check_app_armor(context.get("appArmorProfile"), f"{at}.appArmorProfile", found)
    groups = context.get("supplementalGroupsPolicy")
    checks.choice(groups, ("Merge", "Strict"), f"{at}.supplementalGroupsPolicy", found)
    labels = context.get("seLinuxChangePolicy")
    checks.choice(labels, ("Recursive",), f"{at}.seLinuxChangePolicy", found)


def _check_sysctls(spec: Object, sysctls: list[Object], at: str, found: list[Fault]) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        field, name = f"{at}[{index}].name", sysctl.get("name") or ""
        if not name:
            found.append(faults.required(field))
        elif len(name) > 253 or not _is_sysctl(name):
            found.append(faults.invalid(field, name, f"must have at most 253 characters and match regex {_SYSCTL}"))
        elif name in seen:
            found.append(faults.duplicate(field, name))
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            found.append(faults.invalid(field, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            found.append(faults.invalid(field, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)


def _check_seccomp(profile: Object | None, at: str, found: list[Fault]) -> None:
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        found.append(faults.required(f"{at}.type", "type is required when seccompProfile is set"))
    else:
        checks.choice(kind, _SECCOMP, f"{at}.type", found)
    if kind == "Localhost":
        if local is None:
            found.append(faults.required(f"{at}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            checks.descending_path(local, f"{at}.localhostProfile", found)
    elif local is not None:
        detail = "can only be set when seccomp type is Localhost"
        found.append(faults.invalid(f"{at}.localhostProfile", profile, detail))


def _check_app_armor(profile: Object | None, at: str, found: list[Fault]) -> None:
    if profile is None:
        return
    kind, local, field = profile.get("type") or "", profile.get("localhostProfile"), f"{at}.localhostProfile"
    if kind == "Localhost":
        if local is not None and local != local.strip():
            found.append(faults.invalid(field, local, "must not be padded with whitespace"))
        elif not local:
            found.append(faults.required(field, "must be set when AppArmor type is Localhost"))
        if local is not None and len(local) > _PROFILE_LENGTH:
            found.append(faults.too_long(field, _PROFILE_LENGTH))
    elif kind in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            found.append(faults.invalid(field, local, "can only be set when AppArmor type is Localhost"))
    elif not kind:
        found.append(faults.required(f"{at}.type", "type is required when appArmorProfile is set"))
    else:
        found.append(faults.not_supported(f"{at}.type", kind, _SECCOMP))


def _check_windows(options: Object | None, at: str, found: list[Fault]) -> None:
    """Windows pods do not run here; their options are checked all the same."""
    if not options:
        return
    name, user = options.get("gmsaCredentialSpecName"), options.get("runAsUserName")
    if name is not None:
        checks.told(names.subdomain_problems(name), f"{at}.gmsaCredentialSpecName", name, found)
    if options.get("gmsaCredentialSpec") == "":
        detail = "gmsaCredentialSpec cannot be an empty string"
        found.append(faults.invalid(f"{at}.gmsaCredentialSpec", "", detail))
    if user is not None:
        checks.told([f"runAsUserName{one}" for one in _user_problems(user)], f"{at}.runAsUserName", user, found)


def _user_problems(name: str) -> list[str]:
    """Why a Windows user name is none: `user`, or `domain\\user`."""
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


def check_operating_system(spec: Object, at: str, found: list[Fault]) -> None:
    """`os.name`, and what it excludes."""
    system = spec.get("os")
    if system is None:
        return
    name = system.get("name")
    if not name:
        found.append(faults.required(f"{at}.os.name"))
    elif name not in ("linux", "windows"):
        found.append(faults.not_supported(f"{at}.os", name, ("linux", "windows")))
    elif name == "linux":
        detail = "windows options cannot be set for a linux pod"
        if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
            found.append(faults.forbidden(f"{at}.securityContext.windowsOptions", detail))
        for kind in _CONTAINERS:
            for index, container in enumerate(spec.get(kind) or ()):
                if (container.get("securityContext") or {}).get("windowsOptions") is not None:
                    found.append(faults.forbidden(f"{at}.{kind}[{index}].securityContext.windowsOptions", detail))


def check_host_users(spec: Object, at: str, found: list[Fault]) -> None:
    """A pod with users of its own cannot share the host's namespaces."""
    if spec.get("hostUsers") is not False:
        return
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            found.append(faults.forbidden(f"{at}.{shown}", _OWN_USERS))
    for kind in _CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            if container.get("volumeDevices"):
                found.append(faults.forbidden(f"{at}.{kind}[{index}].volumeDevices", _OWN_USERS))
