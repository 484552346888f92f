"""Why a patch is refused: the answers the patch functions share."""

from __future__ import annotations

from torchyard.api.errors import StatusError, bad_request


def unprocessable() -> StatusError:
    """A well-formed patch that does not fit the object. kube-apiserver keeps the reason to itself here."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def invalid_patch(message: str) -> StatusError:
    """A patch or an applied object that makes no sense for the kind.

    The message is kube-apiserver's; its status there is 500 without a reason, here it is the client's fault.
    """
    return bad_request(message)


def too_deep() -> StatusError:
    return bad_request("json: exceeded max depth")
