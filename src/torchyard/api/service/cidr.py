"""The service CIDR. The API server allocates from it, its certificate contains the first address, and the node routes
it.
"""

from __future__ import annotations

import ipaddress

SERVICE_CIDR = "10.96.0.0/16"
# The `kubernetes` Service always has the first address, as kube-apiserver assigns it.
KUBERNETES_SERVICE_IP = str(ipaddress.IPv4Network(SERVICE_CIDR)[1])
