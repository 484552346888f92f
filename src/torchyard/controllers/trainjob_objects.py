"""Writes the objects of a TrainJob beside its snapshot: JobSet, PodGroups, and for MPI the keys and the hostfile."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, JOBS, SECRETS
from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages, names
from torchyard.api.trainjob.validation import validate, validate_runtime
from torchyard.controllers.jobset import JOBSETS
from torchyard.core.training.elastic import make_token_secret
from torchyard.core.trainjob import mpi
from torchyard.core.trainjob.elastic import resize, wanted_nodes
from torchyard.core.trainjob.jobset import make_jobset, pod_counts
from torchyard.core.trainjob.patches import patched_template
from torchyard.core.trainjob.pod_groups import pod_groups
from torchyard.core.trainjob.status_server import StatusServer, authority_config_map
from torchyard.kube.client import Client

_MAX_REMEMBERED = 16384


class TrainJobObjects:
    """`make` the objects of a job. The JobSet comes last: its pods need the others."""

    def __init__(self, client: Client, server: StatusServer | None = None) -> None:
        """`server` is where the nodes report their progress."""
        self._client, self._server = client, server
        # What was applied last, so that a job that waits in a queue costs no writes.
        self._applied: OrderedDict[str, bytes] = OrderedDict()

    async def make(self, job: Object, runtime: Object, current: Object | None) -> Object:
        policy = runtime["spec"].get("mlPolicy") or {}
        if names.FLUX in policy:
            raise YardError(messages.flux_not_supported())
        # On the plane admission has checked both; on a cluster a runtime can exist that no JobSet can be made from, and
        # a job that does not fit its runtime.
        if errs := validate_runtime(runtime):
            reference = names.runtime_reference(job)
            problems = "; ".join(str(err) for err in errs)
            raise YardError(messages.bad_runtime(reference["kind"], reference["name"], problems))
        errs = validate(job, runtime)
        if errs:
            raise YardError("; ".join(str(err) for err in errs))
        jobset = make_jobset(job, runtime, self._server)
        digest = hashlib.sha256(orjson.dumps(jobset, option=orjson.OPT_SORT_KEYS)).digest()
        uid = job["metadata"]["uid"]
        if current is not None and self._applied.get(uid) == digest:
            return current
        if names.MPI in policy:
            await self._make_mpi(job, runtime, policy, jobset)
        if names.ELASTIC_NODES in (jobset["metadata"].get("annotations") or {}):
            await self._create(make_token_secret(job, names.owner_reference(job), secrets.token_urlsafe(24)))
        authority = None if self._server is None else authority_config_map(self._server, job)
        if authority is not None:
            await self._apply(CONFIG_MAPS, authority)
        for group in pod_groups(job, runtime, jobset):
            await self._apply(_pod_groups(group), group)
        written = await self._apply(JOBSETS, jobset)
        self._applied[uid] = digest
        while len(self._applied) > _MAX_REMEMBERED:
            self._applied.popitem(last=False)
        return written

    async def _apply(self, ref: GroupVersionResource, obj: Object) -> Object:
        metadata = obj["metadata"]
        return await self._client.patch(ref, metadata["name"], obj, metadata["namespace"], kind="apply", force=True)

    async def _create(self, secret: Object) -> None:
        """Create a secret. One that exists stays; no right to read secrets is needed."""
        try:
            await self._client.create(SECRETS, secret)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise

    async def resize(self, job: Object, jobset: Object) -> str:
        """Give the Job of an elastic job its number of nodes. Returns what was changed, for an event."""
        wanted, namespace = wanted_nodes(job, jobset), job["metadata"]["namespace"]
        if wanted is None:
            return ""
        name, count = wanted
        child = await self._client.find(JOBS, name, namespace)
        patch = None if child is None else resize(child, count)
        if child is None or patch is None:
            return ""
        await self._client.patch(JOBS, name, patch, namespace)
        return messages.resized(name, child["spec"].get("parallelism", 1), count)

    async def _make_mpi(self, job: Object, runtime: Object, policy: Object, jobset: Object) -> None:
        await self._create(mpi.key_secret(job, *_key_pair()))
        counts = pod_counts(job, runtime, patched_template(runtime, job)["spec"])
        await self._apply(CONFIG_MAPS, mpi.hostfile(job, policy, counts, jobsets.subdomain(jobset)))


def _key_pair() -> tuple[str, str]:
    """A private key and the line of `authorized_keys` that lets it in."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode() + "\n"


def _pod_groups(group: Object) -> GroupVersionResource:
    api_group, version = group["apiVersion"].split("/")
    return GroupVersionResource(api_group, version, "podgroups")
