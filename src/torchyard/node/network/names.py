"""The DNS names of the cluster, from Services and EndpointSlices, and the files in /etc that hold them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchyard.api.objects import Object

DnsRecords = dict[str, list[str]]  # full name → addresses

_SERVICE_LABEL = "kubernetes.io/service-name"


def service_of(endpoint_slice: Object) -> list[str]:
    """The service of an EndpointSlice as `namespace/name`: an index of an informer."""
    metadata = endpoint_slice["metadata"]
    service = (metadata.get("labels") or {}).get(_SERVICE_LABEL)
    return [f"{metadata['namespace']}/{service}"] if service else []


def service_records(service: Object, slices: Iterable[Object], *, domain: str) -> DnsRecords:
    """The names of one service that the cluster's DNS server answers for, in lower case, without the trailing dot.

    `slices` are the service's own EndpointSlices.
    """
    metadata, spec = service["metadata"], service["spec"]
    full_name = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
    address = spec.get("clusterIP")
    if spec.get("type") == "ExternalName":
        return {}
    if address and address != "None":
        return {full_name: [address]}
    records: DnsRecords = {}
    ready_only = not spec.get("publishNotReadyAddresses")
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.get("endpoints") or ():
            if ready_only and (endpoint.get("conditions") or {}).get("ready", True) is False:
                continue
            addresses = list(endpoint.get("addresses") or ())
            records.setdefault(full_name, []).extend(addresses)
            if endpoint.get("hostname"):
                records.setdefault(f"{endpoint['hostname']}.{full_name}", []).extend(addresses)
    return records


def service_alias(service: Object, *, domain: str) -> dict[str, str]:
    """The name that a Service of type ExternalName stands for, by its own."""
    metadata, spec = service["metadata"], service["spec"]
    if spec.get("type") != "ExternalName" or not spec.get("externalName"):
        return {}
    return {f"{metadata['name']}.{metadata['namespace']}.svc.{domain}": spec["externalName"].rstrip(".").lower()}


def hosts_file(
    records: Mapping[str, list[str]],
    *,
    namespace: str,
    domain: str,
    own: tuple[str, str],
    aliases: Iterable[Object] = (),
    machine: str | None = None,
) -> str:
    """/etc/hosts of one pod: itself, its aliases, and the services of its namespace, which then need no DNS query.

    `machine` is the file of the machine, for a pod in its network.
    """
    address, hostname = own
    if machine is not None:
        lines = ["# Kubernetes-managed hosts file (host network).", *machine.rstrip("\n").split("\n")]
    else:
        lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
        lines += ["::1\tlocalhost ip6-localhost ip6-loopback", "fe00::0\tip6-localnet", "fe00::0\tip6-mcastprefix"]
        lines += ["fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters"]
        if address:
            lines.append(f"{address}\t{hostname}")
    aliases = list(aliases)
    if aliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join([alias["ip"], *(alias.get("hostnames") or ())]) for alias in aliases]
    suffix = f".{namespace}.svc.{domain}"
    own_namespace = [(name, addresses) for name, addresses in sorted(records.items()) if name.endswith(suffix)]
    if own_namespace:
        lines += ["", "# Services of this namespace."]
    for name, addresses in own_namespace:
        short = name.removesuffix(suffix)
        spellings = [short, f"{short}.{namespace}", f"{short}.{namespace}.svc", name]
        lines += ["\t".join([address, *spellings]) for address in addresses]
    return "\n".join(lines) + "\n"


def resolv_conf(*, namespace: str, domain: str, server: str, policy: str, extra: Object, machine: str) -> str:
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
    servers += [address for address in extra.get("nameservers") or () if address not in servers]
    searches += [suffix for suffix in extra.get("searches") or () if suffix not in searches]
    for option in extra.get("options") or ():
        text = f"{option['name']}:{option['value']}" if option.get("value") else option["name"]
        options = [other for other in options if other.partition(":")[0] != option["name"]] + [text]
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {address}" for address in servers]
    lines += [f"options {' '.join(options)}"] if options else []
    return "\n".join(lines) + "\n"
