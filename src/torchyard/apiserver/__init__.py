"""The embedded Kubernetes API server. A package imports only from those listed after it.

Read in this order, the way of a request:
- `http`: sockets and HTTP/1.1;
- `routing`: authorization, and the handler of a request;
- `aggregation`: requests that extension API servers answer;
- `virtual`, `subresources`, `handlers`: what answers a request: computed resources, subresources, stored resources;
- `crd`: custom resources; `lifecycle`: bootstrap and periodic cleanup; `admission`: plugins, webhooks, quota;
- `verbs`: get, list, watch, create, update, patch, delete;
- `wire`: wire formats, discovery, OpenAPI; `streams`: log, exec, attach, port-forward;
- `proxy`: requests that pods answer;
- `registry`: the served resources, and what the verbs need;
- `request`: requests and responses without their transport;
- `access`: authentication, RBAC, admission plugins and webhooks;
- `apply`, `patch`, `cel`: server-side apply, patch formats and CEL as pure functions;
- `service_network`: connections to pods and Services;
- `metrics`, `store`, `golang`: request metrics; objects on disk and in memory; text as Go writes it.
"""
