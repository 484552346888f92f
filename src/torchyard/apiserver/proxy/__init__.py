"""HTTP requests that the API server passes on, as kube-apiserver does: to pods (`pods/proxy`, `services/proxy`), and to
extension API servers.

Read in this order:
- `location`: from `[scheme:]name[:port]` to the address of a pod;
- `client_request`: what is passed on of the client's request;
- `url_rewriter`, `html_rewriter`: links and redirects of the pod, so that they lead through the proxy again;
- `content_sniffer`: the content type of a response that has none;
- `page_sandbox`: an origin of its own for a page in a browser;
- `reverse_proxy`: requests with their bodies, and the responses;
- `upgrade_proxy`: requests that upgrade their connection, such as WebSockets.
"""
