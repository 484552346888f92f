"""The errors that the patch formats share."""

from __future__ import annotations

from torchyard.api.errors import StatusError, bad_request


def unprocessable() -> StatusError:
    """A well-formed patch that cannot be applied to the object. As in kube-apiserver, the message has no reason."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def invalid_patch(message: str) -> StatusError:
    """A patch or an applied object that is invalid for the kind.

    The message is kube-apiserver's. Its status there is 500; here it is 400, because the request is at fault.
    """
    return bad_request(message)


def too_deep() -> StatusError:
    return bad_request("json: exceeded max depth")


class YamlConversionError(Exception):
    """A text that is not valid YAML or has no JSON form; the message is the Go library's."""
