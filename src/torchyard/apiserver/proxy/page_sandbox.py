"""Keeps pages of proxied servers, which browsers show at this server's origin, from acting as its user."""

from __future__ import annotations

from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response

# A page of a pod has the origin of this server, and with it that of the console. In a sandbox it has an origin of its
# own: it can neither read responses of this server nor the storage of the console's pages.
_SANDBOX = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups"


def sandbox_page(request: Request, response: Response) -> Response:
    """The proxied response, in a sandbox if a browser may show it as a page. It is changed in place.

    Programs get the headers that kube-apiserver sends. So do browsers behind a proxy of the user, such as
    `kubectl proxy`: they show the page at the origin of that proxy, and pages such as TensorBoard's need an origin.
    A browser that opens a page here cannot be made to send X-Forwarded-For.
    """
    headers = request.headers
    if "X-Forwarded-For" in headers:
        return response
    is_browser = "Sec-Fetch-Dest" in headers or "Mozilla/" in headers.get("User-Agent", "")
    if response.proxied is not None and is_browser:
        response.proxied.headers.append(("Content-Security-Policy", _SANDBOX))
    return response
