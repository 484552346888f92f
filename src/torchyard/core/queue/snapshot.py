"""The quota as one scheduling cycle sees it.

Kueue copies its cache for each cycle. This snapshot works on the live quota tree instead: it simulates changes in place
and takes them back, so that a cycle costs what it looks at, however many ClusterQueues there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType

from torchyard.core.queue.cache import QueueCache
from torchyard.core.queue.nomination import BlockedHead, NominatedWorkload
from torchyard.core.queue.preemption import ReclaimCandidates
from torchyard.core.queue.quota import NodeUsage, QuotaNode
from torchyard.core.queue.workload_info import Key


class QuotaSnapshot:
    """Counts the quota that preemptors will get as used, beside that of the workloads they preempt.

    Kueue lets the entries after a preemptor have what is left when the preemption is complete. Here they also must fit
    before it is complete, so that usage never exceeds a quota.
    """

    def __init__(self, cache: QueueCache) -> None:
        self._cache = cache
        self.candidates = ReclaimCandidates(cache.members)
        self._promised: dict[QuotaNode, list[NodeUsage]] = {}  # by root
        self._transient: dict[QuotaNode, list[NodeUsage]] = {}  # by root: promised for this cycle only
        self._leaving: dict[QuotaNode, dict[Key, NodeUsage]] = {}  # by root: what preemption will release

    def __enter__(self) -> QuotaSnapshot:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.drop_transient_promises()
        for usages in self._promised.values():
            for node, quantities in usages:
                node.remove_usage(quantities)

    def usages(self, keys: Iterable[Key]) -> dict[Key, NodeUsage]:
        """The quota that these workloads hold, without those that hold none any more."""
        workloads = (self._cache.workloads.get(key) for key in keys)
        reserving = ((info, self._cache.cluster_queues.get(info.reserved_in)) for info in workloads if info is not None)
        return {info.key: NodeUsage(cq.node, info.usage) for info, cq in reserving if cq is not None}

    @property
    def promised_roots(self) -> Collection[QuotaNode]:
        """The roots under which usage includes promises."""
        return self._promised.keys() | self._transient.keys()

    def drop_transient_promises(self) -> None:
        """At the end of the cycle: the next one may give that quota to others."""
        for usages in self._transient.values():
            for node, quantities in usages:
                node.remove_usage(quantities)
        self._transient = {}

    def promise(self, entry: NominatedWorkload) -> None:
        """Count what a preemptor will get as used."""
        root = entry.cq.node.root
        leaving = entry.target_keys
        if entry.replaced is not None:
            leaving.append(entry.replaced.key)
        self._leaving.setdefault(root, {}).update(self.usages(leaving))
        self._promised.setdefault(root, []).append(NodeUsage(entry.cq.node, entry.assignment.usage))
        entry.cq.node.add_usage(entry.assignment.usage)

    def promise_to_head(self, head: BlockedHead, *, is_transient: bool = False) -> None:
        """Count what is reserved for a blocked head as used."""
        reserved = NodeUsage(head.cq.node, head.reserved)
        (self._transient if is_transient else self._promised).setdefault(head.cq.node.root, []).append(reserved)
        head.cq.node.add_usage(reserved.quantities)

    def fits(self, entry: NominatedWorkload) -> bool:
        """Whether a workload fits now, or without its targets, and also after all promises are fulfilled."""
        if not entry.targets and entry.fits:
            return True
        leaving = {**self._leaving.get(entry.cq.node.root, {}), **self.usages(entry.target_keys)}
        may_wait = bool(entry.targets) or self.fits_without_promises(entry)
        return may_wait and entry.fits_without([*leaving.values()])

    def fits_without_promises(self, entry: NominatedWorkload) -> bool:
        """Whether only promises to preemptors keep a workload from being admitted."""
        targets = self.usages(entry.target_keys).values()
        return entry.fits_without([*self._promised.get(entry.cq.node.root, ()), *targets])
