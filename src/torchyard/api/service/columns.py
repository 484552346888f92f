"""Table columns of services, endpoints, ingresses and network policies."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    age_of,
    format_labels,
    format_selector,
    load_balancer,
    name_of,
    truncate_list,
)

# The number of endpoints, hosts or ports in a cell.
_MAX_SHOWN = 3


def _service_cells(service: Object, now: datetime) -> list[Cell]:
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs") or ()
    return [
        name_of(service),
        spec.get("type") or "",
        addresses[0] if addresses else NONE,
        _external(service, spec),
        ",".join(_port(port) for port in spec.get("ports") or ()) or NONE,
        age_of(service, now),
        format_labels(spec.get("selector")),
    ]


def _external(service: Object, spec: Object) -> str:
    external_ips = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external_ips) or NONE
        case "LoadBalancer":
            balanced = load_balancer(service.get("status"))
            return ",".join([*([balanced] if balanced else []), *external_ips]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName") or "")
    return UNKNOWN


def _port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol') or 'TCP'}"


SERVICES = Columns(
    (
        NAME,
        Column("Type", description="The type of the service."),
        Column("Cluster-IP", description="The cluster IP of the service."),
        Column("External-IP", description="The external addresses of the service."),
        Column("Port(s)", description="The ports of the service, with their node ports."),
        AGE,
        Column("Selector", description="The labels that select the pods of the service.", priority=1),
    ),
    _service_cells,
)


def _endpoints_cells(endpoints: Object, now: datetime) -> list[Cell]:
    subsets = endpoints.get("subsets") or ()
    listed: list[str] = []
    for subset in subsets:
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            listed += addresses
            continue
        for port in ports:
            listed += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    text = truncate_list(listed[:_MAX_SHOWN], len(listed), "") if subsets else NONE
    return [name_of(endpoints), text, age_of(endpoints, now)]


ENDPOINTS = Columns((NAME, Column("Endpoints", description="The endpoints of the service."), AGE), _endpoints_cells)


def _endpoint_slice_cells(slice_: Object, now: datetime) -> list[Cell]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in slice_.get("ports") or ()]
    addresses = [address for endpoint in slice_.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name_of(slice_),
        slice_.get("addressType") or "",
        truncate_list(ports[:_MAX_SHOWN], len(ports), UNSET),
        truncate_list(addresses[:_MAX_SHOWN], len(addresses), UNSET),
        age_of(slice_, now),
    ]


ENDPOINT_SLICES = Columns(
    (
        NAME,
        Column("AddressType", description="IPv4, IPv6 or FQDN."),
        Column("Ports", description="The ports of the endpoints."),
        Column("Endpoints", description="The addresses of the endpoints."),
        AGE,
    ),
    _endpoint_slice_cells,
)


def _ingress_cells(ingress: Object, now: datetime) -> list[Cell]:
    spec = ingress.get("spec") or {}
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    return [
        name_of(ingress),
        spec.get("ingressClassName") or NONE,
        truncate_list(hosts[:_MAX_SHOWN], len(hosts), "*"),
        load_balancer(ingress.get("status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(ingress, now),
    ]


INGRESSES = Columns(
    (
        NAME,
        Column("Class", description="The ingress class."),
        Column("Hosts", description="The host names of the rules."),
        Column("Address", description="The addresses of the load balancer."),
        Column("Ports", description="The ports of the ingress."),
        AGE,
    ),
    _ingress_cells,
)


def _ingress_class_cells(ingress_class: Object, now: datetime) -> list[Cell]:
    spec = ingress_class.get("spec") or {}
    reference = spec.get("parameters")
    parameters = NONE
    if reference:
        group = f".{reference['apiGroup']}" if "apiGroup" in reference else ""
        parameters = f"{reference.get('kind', '')}{group}/{reference.get('name', '')}"
    return [name_of(ingress_class), spec.get("controller") or "", parameters, age_of(ingress_class, now)]


INGRESS_CLASSES = Columns(
    (
        NAME,
        Column("Controller", description="The controller of this ingress class."),
        Column("Parameters", description="The parameters of this ingress class."),
        AGE,
    ),
    _ingress_class_cells,
)


def _network_policy_cells(policy: Object, now: datetime) -> list[Cell]:
    return [name_of(policy), format_selector((policy.get("spec") or {}).get("podSelector")), age_of(policy, now)]


NETWORK_POLICIES = Columns(
    (NAME, Column("Pod-Selector", description="The labels that select the pods of the policy."), AGE),
    _network_policy_cells,
)


def _address_cells(address: Object, now: datetime) -> list[Cell]:
    parent = (address.get("spec") or {}).get("parentRef") or {}
    parts = [parent.get(field) for field in ("resource", "namespace", "name")]
    # As in upstream, the group follows the resource, and empty parts are omitted.
    if parent.get("group"):
        parts[0] = f"{parts[0]}.{parent['group']}"
    # Upstream's rows have an age but no column for it.
    return [name_of(address), "/".join(part for part in parts if part), age_of(address, now)]


IP_ADDRESSES = Columns((NAME, Column("ParentRef", description="The object that uses the address.")), _address_cells)


def _service_cidr_cells(cidr: Object, now: datetime) -> list[Cell]:
    return [name_of(cidr), ",".join((cidr.get("spec") or {}).get("cidrs") or ()), age_of(cidr, now)]


SERVICE_CIDRS = Columns(
    (NAME, Column("CIDRs", description="The ranges of service addresses."), AGE), _service_cidr_cells
)
