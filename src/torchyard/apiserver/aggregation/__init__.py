"""Aggregated APIs: groups that an extension API server behind a Service serves, as kube-aggregator does it.

An APIService with `spec.service` takes over its group and version: requests are authorized here and passed on with the
user in headers, which the extension server trusts because of the client certificate.

Read in this order:
- `api_services`: the registered APIServices, by group and version, and what their servers serve;
- `backend`: the address of an APIService's server, and how it is verified;
- `forwarding`: requests that the extension server answers;
- `availability`: the checks behind the condition `Available`;
- `resource_list`: the resources that a server lists;
- `controller`: runs the checks and writes the condition;
- `serving`: puts the parts together, and the ConfigMap that extension API servers read.
"""
