"""Services, endpoints, ingresses and network policies.

Modules in reading order:

- `strategy`: strategies
- `cidr`: the service CIDR
- `defaults`: defaults
- `validation`: validation of Services
- `allocation`: rules for cluster IPs and node ports
- `endpoints`: validation of Endpoints and EndpointSlices
- `ingress`: validation of Ingresses, IngressClasses and NetworkPolicies
- `addresses`: IPAddress and ServiceCIDR
- `messages`: events of the node about Services
- `columns`: table columns
"""
