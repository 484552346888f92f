"""Subresources, one module each. A handler takes the resource handlers, the request context and the request.

Read in this order:
- `handlers`: the table of subresources;
- `status`, `scale`: of every kind that has them;
- `binding`, `eviction`, `pod_parts`, `pod_streams`: of pods;
- `proxy`: of pods and services; `node_proxy`: of nodes;
- `finalize`: of namespaces;
- `certificate_status`: of certificate requests;
- `token`: of service accounts;
- `pending_workloads`: of queues (Kueue's visibility API);
- `refused`: subresources of a real server that this one does not have.
"""
