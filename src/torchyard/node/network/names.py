"""Which names stand for which addresses in the cluster. Pure: from services and endpoint slices to a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchyard.api.objects import Object

Table = dict[str, list[str]]  # full name → addresses

_SERVICE_LABEL = "kubernetes.io/service-name"


def table(services: Iterable[Object], slices: Iterable[Object], *, domain: str) -> Table:
    """Every name the cluster's resolver answers for, without the trailing dot, in lower case."""
    names: Table = {}
    endpoints: dict[tuple[str, str], list[Object]] = {}
    for one in slices:
        metadata = one["metadata"]
        owner = (metadata.get("labels") or {}).get(_SERVICE_LABEL)
        if owner:
            endpoints.setdefault((metadata["namespace"], owner), []).extend(one.get("endpoints") or ())
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        full = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
        address = spec.get("clusterIP")
        if spec.get("type") == "ExternalName":
            continue
        if address and address != "None":
            names[full] = [address]
            continue
        waits = not spec.get("publishNotReadyAddresses")
        for endpoint in endpoints.get((metadata["namespace"], metadata["name"]), ()):
            ready = (endpoint.get("conditions") or {}).get("ready", True)
            if waits and ready is False:
                continue
            found = list(endpoint.get("addresses") or ())
            names.setdefault(full, []).extend(found)
            if endpoint.get("hostname"):
                names.setdefault(f"{endpoint['hostname']}.{full}", []).extend(found)
    return names


def hosts_file(
    names: Mapping[str, list[str]],
    *,
    namespace: str,
    domain: str,
    own: tuple[str, str],
    aliases: Iterable[Object] = (),
) -> str:
    """/etc/hosts of one pod: itself, its aliases, and the services of its namespace, so that names need no resolver."""
    address, hostname = own
    lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    lines += ["fe00::0\tip6-localnet", "fe00::0\tip6-mcastprefix", "fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters"]
    if address:
        lines.append(f"{address}\t{hostname}")
    aliases = list(aliases)
    if aliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join([one["ip"], *(one.get("hostnames") or ())]) for one in aliases]
    suffix = f".{namespace}.svc.{domain}"
    mine = [(full, found) for full, found in sorted(names.items()) if full.endswith(suffix)]
    if mine:
        lines += ["", "# Services of this namespace."]
    for full, found in mine:
        short = full.removesuffix(suffix)
        spellings = [short, f"{short}.{namespace}", f"{short}.{namespace}.svc", full]
        lines += ["\t".join([one, *spellings]) for one in found]
    return "\n".join(lines) + "\n"


def resolver_file(*, namespace: str, domain: str, server: str, policy: str, extra: Object, machine: str) -> str:
    """/etc/resolv.conf of one pod by its dnsPolicy and dnsConfig."""
    servers, searches, options = [], [], []
    if policy in ("ClusterFirst", "ClusterFirstWithHostNet"):
        servers = [server]
        searches = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
        options = ["ndots:5"]
    elif policy == "Default":
        for line in machine.splitlines():
            words = line.split()
            if words[:1] == ["nameserver"]:
                servers.append(words[1])
            elif words[:1] == ["search"]:
                searches = words[1:]
            elif words[:1] == ["options"]:
                options = words[1:]
    servers += [one for one in extra.get("nameservers") or () if one not in servers]
    searches += [one for one in extra.get("searches") or () if one not in searches]
    for option in extra.get("options") or ():
        text = f"{option['name']}:{option['value']}" if option.get("value") else option["name"]
        options = [one for one in options if one.partition(":")[0] != option["name"]] + [text]
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {one}" for one in servers]
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join(lines) + "\n"
