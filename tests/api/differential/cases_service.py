"""Cases of Services, endpoints, ingresses and network policies."""

from __future__ import annotations

from typing import Any

from tests.api.differential.changes import both, set_
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

PORTS: list[Object] = [{"port": 80}]


def service(name: str = "s", annotations: Object | None = None, **spec: Any) -> Object:
    spec = {"ports": [dict(port) for port in PORTS], **spec}
    meta = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def of(api_version: str, kind: str, /, name: str = "x", annotations: Object | None = None, **body: Any) -> Object:
    meta = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **body}


def slice_(**body: Any) -> Object:
    return of("discovery.k8s.io/v1", "EndpointSlice", **body)


def network(kind: str, /, annotations: Object | None = None, **spec: Any) -> Object:
    return of("networking.k8s.io/v1", kind, annotations=annotations, spec=spec)


def path(**entry: Any) -> Object:
    return {"http": {"paths": [entry]}}


BACKEND: Object = {"service": {"name": "s", "port": {"number": 80}}}

GOOD: dict[str, Object] = {
    "minimal": service(),
    "several ports": service(
        ports=[{"port": 80, "name": "a", "targetPort": "http"}, {"port": 80, "name": "b", "protocol": "UDP"}]
    ),
    "headless without selector": service(clusterIP="None"),
    "headless": service(clusterIP="None", selector={"a": "b"}),
    "headless without ports": service(clusterIP="None", selector={"a": "b"}, ports=[]),
    "headless with what it ignores": service(
        clusterIP="None", externalIPs=["1.2.3.4"], loadBalancerIP="1.2.3.4", sessionAffinity="ClientIP"
    ),
    "a name for nothing": service(externalName="a.b"),
    "external name": service(type="ExternalName", externalName="a.b.", ports=[]),
    "client affinity": service(sessionAffinity="ClientIP"),
    "no affinity, some config": service(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}}),
    "external addresses": service(externalIPs=["1.2.3.4"]),
    "both families if there are": service(ipFamilyPolicy="PreferDualStack"),
    "traffic to the same node": service(trafficDistribution="PreferSameNode"),
    "endpoints": of("v1", "Endpoints", subsets=[{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80}]}]),
    "a slice": slice_(addressType="IPv4", endpoints=[{"addresses": ["1.2.3.4"]}], ports=[{"port": 80}]),
    "an ingress": network("Ingress", rules=[{"host": "*.a.b", **path(path="/", pathType="Prefix", backend=BACKEND)}]),
    "an ingress with an old class": network(
        "Ingress", annotations={"kubernetes.io/ingress.class": "x"}, defaultBackend=BACKEND
    ),
    "an ingress class": network("IngressClass", controller="a.b/c", parameters={"kind": "a", "name": "b"}),
    "a network policy": network("NetworkPolicy", podSelector={}),
    "a network policy with both": network(
        "NetworkPolicy",
        podSelector={},
        egress=[
            {
                "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                "ports": [{"port": 80, "endPort": 90}],
            }
        ],
    ),
}

BAD: dict[str, Object] = {
    "no ports": service(ports=[]),
    "an odd name": service(name="1a"),
    "external name without one": service(type="ExternalName"),
    "external name with an address": service(type="ExternalName", externalName="A", clusterIP="10.96.0.5"),
    "node port and headless": service(type="NodePort", clusterIP="None"),
    "a node port where there is none": service(ports=[{"port": 80, "nodePort": 30001}]),
    "an address that is none": service(clusterIP="x"),
    "another family": service(clusterIP="fd00::1"),
    "addresses without the first": service(clusterIPs=["10.96.0.9"]),
    "addresses that contradict": service(clusterIP="10.96.0.8", clusterIPs=["10.96.0.9"]),
    "two addresses of one family": service(clusterIP="10.96.0.8", clusterIPs=["10.96.0.8", "10.96.0.9"]),
    "both families": service(ipFamilyPolicy="RequireDualStack"),
    "the other family": service(ipFamilies=["IPv6"]),
    "two families, one policy": service(ipFamilies=["IPv4", "IPv6"]),
    "families": service(ipFamilies=["IPv4", "IPv4", "X"], ipFamilyPolicy="X"),
    "everything": service(
        ports=[{"port": 0, "targetPort": "A_", "protocol": "X", "appProtocol": "a b"}, {"port": 0}],
        sessionAffinity="X",
        selector={"a b": "c"},
        externalTrafficPolicy="X",
        internalTrafficPolicy="X",
        loadBalancerClass="x y",
        allocateLoadBalancerNodePorts=True,
        healthCheckNodePort=5,
        externalIPs=["127.0.0.1", "x"],
        loadBalancerSourceRanges=["x"],
        trafficDistribution="X",
    ),
    "an odd type": service(type="X"),
    "ports twice": service(ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "a"}]),
    "affinity for no time": service(
        sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}}
    ),
    "annotations": service(
        annotations={
            "service.kubernetes.io/topology-mode": "a",
            "service.kubernetes.io/topology-aware-hints": "b",
            "service.beta.kubernetes.io/load-balancer-source-ranges": "x",
        }
    ),
    "endpoints": of(
        "v1",
        "Endpoints",
        subsets=[
            {"ports": [{"port": 80}]},
            {
                "addresses": [{"ip": "x", "hostname": "A", "nodeName": "A"}],
                "notReadyAddresses": [{"ip": "0.0.0.0"}, {"ip": "169.254.1.1"}, {"ip": "224.0.0.1"}],
                "ports": [{"port": 0, "protocol": "X", "appProtocol": "a b"}, {"port": 1, "name": "A"}],
            },
        ],
    ),
    "a slice of nothing": slice_(endpoints=[]),
    "a slice of an odd type": slice_(
        addressType="X", endpoints=[{"addresses": ["127.0.0.1", "_"], "nodeName": "_"}, {}], ports=[{}, {}]
    ),
    "a slice": slice_(
        addressType="IPv4",
        endpoints=[
            {"addresses": []},
            {
                "addresses": ["x", "fd00::1", "127.0.0.1"],
                "hostname": "A",
                "nodeName": "A",
                "hints": {"forZones": [{"name": "a b"}, {"name": "a"}, {"name": "a"}]},
            },
        ],
        ports=[{"name": "A", "protocol": "X"}, {"name": "a", "appProtocol": "a b"}, {"name": "a"}],
    ),
    "a slice of names": slice_(addressType="FQDN", endpoints=[{"addresses": ["A"]}]),
    "too many endpoints": slice_(addressType="IPv4", endpoints=[{"addresses": ["1.2.3.4"]}] * 1001),
    "an empty ingress": network("Ingress"),
    "stars in an ingress": network(
        "Ingress",
        tls=[{"hosts": ["*"]}],
        rules=[{"host": "*a.b"}, {"host": "a.*"}, {"host": "*."}, {"host": "fd00::1"}],
    ),
    "an ingress": network(
        "Ingress",
        annotations={"kubernetes.io/ingress.class": "x"},
        defaultBackend={},
        ingressClassName="A",
        tls=[{"hosts": ["A", "*.A"], "secretName": "A"}],
        rules=[
            {"host": "1.2.3.4", "http": {"paths": []}},
            {"host": "A"},
            path(backend=BACKEND),
            path(pathType="X", path="a", backend={**BACKEND, "resource": {"kind": "", "name": ""}}),
            path(pathType="Exact", path="//a/../b/.", backend={"service": {"name": "", "port": {"number": 70000}}}),
            path(pathType="Exact", path="", backend={"resource": {"kind": "", "name": ""}}),
            path(
                pathType="ImplementationSpecific", path="x", backend={"service": {"name": "A", "port": {"name": "A"}}}
            ),
            path(pathType="Prefix", path="/x", backend={"service": {"name": "a", "port": {}}}),
            path(pathType="Prefix", path="/x", backend={"service": {"name": "a", "port": {"name": "a", "number": 1}}}),
        ],
    ),
    "an ingress class": network("IngressClass", controller="x", parameters={"kind": "", "name": "", "scope": "X"}),
    "an ingress class without a controller": network("IngressClass"),
    "an ingress class in a namespace": network(
        "IngressClass",
        controller="a.b/" + "c" * 250,
        parameters={"kind": "A/b", "name": "a/b", "scope": "Namespace", "apiGroup": "A"},
    ),
    "an ingress class for all with a namespace": network(
        "IngressClass", controller="a.b/c", parameters={"kind": "A", "name": "a", "scope": "Cluster", "namespace": "x"}
    ),
    "a network policy": network(
        "NetworkPolicy",
        podSelector={"matchLabels": {"a b": "c"}},
        policyTypes=["X", "Ingress", "Egress"],
        ingress=[
            {
                "ports": [
                    {"port": 0, "protocol": "X"},
                    {"port": "A"},
                    {"port": 5, "endPort": 3},
                    {"endPort": 3},
                    {"port": "http", "endPort": 5},
                ],
                "from": [
                    {},
                    {"ipBlock": {"cidr": "x", "except": ["1.2.3.4/24"]}},
                    {"ipBlock": {"cidr": "1.2.3.0/24", "except": ["2.2.3.4/32", "y"]}, "podSelector": {}},
                    {"ipBlock": {"cidr": ""}},
                ],
            }
        ],
        egress=[{"to": [{"namespaceSelector": {"matchExpressions": [{"key": "", "operator": "X"}]}}]}],
    ),
    "a network policy of an odd type": network("NetworkPolicy", podSelector={}, policyTypes=["X"]),
}

UPDATES: list[Case] = [
    Case("the selector", service(), set_("spec.selector", {"a": "b"})),
    Case("no address", service(), both(set_("spec.clusterIP", None), set_("spec.clusterIPs", None))),
    Case("another address", service(), set_("spec.clusterIP", "10.96.0.77")),
    Case("to headless", service(), lambda o: o["spec"].update(clusterIP="None", clusterIPs=["None"])),
    Case("to an external name", service(), lambda o: o["spec"].update(type="ExternalName", externalName="a.b")),
    Case("another family", service(), set_("spec.ipFamilies", ["IPv6"])),
    Case("fewer ports", service(), set_("spec.ports", [])),
    Case(
        "an address of a balancer that is none",
        service(),
        set_("status.loadBalancer", {"ingress": [{"ip": "1.2.3.4"}]}),
        part="status",
    ),
    Case("a slice of another type", slice_(addressType="IPv4", endpoints=[]), set_("addressType", "IPv6")),
    Case("another controller", network("IngressClass", controller="a.b/c"), set_("spec.controller", "a.b/d")),
    Case("an ingress", network("Ingress", defaultBackend=BACKEND), set_("spec.defaultBackend", {})),
    Case(
        "a network policy",
        network("NetworkPolicy", podSelector={}),
        set_("spec.podSelector", {"matchLabels": {"a": "b"}}),
    ),
]

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += UPDATES
