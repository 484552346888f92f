"""The server part of the web console: pages, one-time login, and the Kubernetes API with the user's rights.

The plane serves it below `/console` of its API server; `yard console` serves the same handlers on the loopback address
and forwards with the user's kubeconfig. It knows neither of the two: both implement `ConsoleBackend`.

Modules in reading order:

- `request`: requests and responses without their transport, and what a backend does
- `app`: which handler gets a request
- `origin`: refuses requests that other web pages cause
- `sessions`: one-time codes, and the sessions that they begin
- `pages`: the built pages
- `kubernetes_path`: which paths of the API server are reached
- `multiplex`: many watches and logs in one response
- `forwarding`: a backend that forwards with a kubeconfig
- `cluster_usage`: curves of a cluster's jobs
- `loopback`: the HTTP server of `yard console`
"""
