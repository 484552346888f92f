"""Objects of S3 and what speaks like it (`s3://bucket/prefix`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from torchyard.initializer.brought_files import replacing
from torchyard.initializer.errors import InitializerError
from torchyard.initializer.request import InitializerRequest

_INSTALL = "install boto3 in the image of the initializer: pip install boto3"
# The variables of Trainer's initializers, and what boto3 calls them.
_CLIENT_OPTIONS = {
    "ENDPOINT": "endpoint_url",
    "ACCESS_KEY_ID": "aws_access_key_id",
    "SECRET_ACCESS_KEY": "aws_secret_access_key",
    "REGION": "region_name",
}


def bring_objects(request: InitializerRequest, target: Path) -> int:
    """Download all objects with the prefix; returns their number. Those that are there with the same size stay."""
    if not request.location:
        raise request.error("does not name a bucket", "use s3://bucket/prefix")
    try:
        boto3 = importlib.import_module("boto3")
    except ImportError as error:
        raise request.error(f"needs the package boto3, which this image lacks ({error})", _INSTALL) from None
    try:
        client = _client(boto3, request)
        count = sum(1 for _ in _download(client, request, target))
    except InitializerError:
        raise
    except Exception as error:  # boto3 makes its exceptions at run time
        raise _explained(request, error) from error
    if not count:
        raise request.error("has no objects", "correct the bucket or the prefix, or IGNORE_PATTERNS")
    return count


def _client(boto3: Any, request: InitializerRequest) -> Any:
    variables = request.variables
    options = {option: variables[name] for name, option in _CLIENT_OPTIONS.items() if variables.get(name)}
    role = variables.get("ROLE_ARN")
    if not role:
        return boto3.client("s3", **options)
    token_options = {name: value for name, value in options.items() if name != "endpoint_url"}
    answer = boto3.client("sts", **token_options).assume_role(RoleArn=role, RoleSessionName="torchyard-initializer")
    issued = answer["Credentials"]
    options |= {"aws_access_key_id": issued["AccessKeyId"], "aws_secret_access_key": issued["SecretAccessKey"]}
    return boto3.client("s3", aws_session_token=issued["SessionToken"], **options)


def _download(client: Any, request: InitializerRequest, target: Path) -> Iterator[Path]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=request.location, Prefix=request.path):
        for entry in page.get("Contents") or ():
            relative = _relative(request, entry["Key"])
            if relative is None or request.is_ignored(str(relative)):
                continue
            path = target / relative
            if not path.is_file() or path.stat().st_size != entry["Size"]:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as partial:
                    client.download_file(request.location, entry["Key"], str(partial))
            yield path


def _relative(request: InitializerRequest, key: str) -> PurePosixPath | None:
    """The place of an object below the target; None for keys that stand for directories and those beside the prefix."""
    prefix = request.path.rstrip("/")
    if key.endswith("/"):
        return None
    if key == prefix:
        return PurePosixPath(PurePosixPath(key).name)
    if prefix and not key.startswith(f"{prefix}/"):
        return None  # `mnist-old/1` has the prefix `mnist`
    relative = PurePosixPath(key[len(prefix) :].lstrip("/"))
    if ".." in relative.parts or relative.is_absolute():
        raise request.error(f"has the object {key!r}, which leads out of the volume", "remove the object")
    return relative


def _explained(request: InitializerRequest, error: Exception) -> InitializerError:
    name, response = type(error).__name__, getattr(error, "response", None)
    code = str((response.get("Error") or {}).get("Code", "")) if isinstance(response, dict) else ""
    if name == "NoCredentialsError" or code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        reason = f"{request.uri!r} may not be read with these credentials ({code or name})"
        fix = "set ACCESS_KEY_ID and SECRET_ACCESS_KEY, or name a Secret with these keys in secretRef"
        return InitializerError(request.variable_field("ACCESS_KEY_ID"), reason, fix)
    if code in ("NoSuchBucket", "404"):
        return request.error("names a bucket that does not exist", "correct the bucket, REGION or ENDPOINT")
    fix = "check ENDPOINT and the network of the pod; the initializer may be started again"
    return request.error(f"cannot be downloaded: {name}: {str(error).strip()[:500]}", fix)
