"""The book of all queues: kept up to date change by change, so that a decision costs what it changes and no more.

Whoever owns the book tells it of objects that came, changed or went, and asks `cycle` what to do. A change of
configuration (cluster queues, flavors, cohorts, checks) is rare and rebuilds everything. Namespaces and local queues
come and go with the people who use them: theirs alone are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Lane, Pool
from torchyard.core.queue.eligibility import Labels, Why, why_not_at_door, why_outside
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.hierarchy import build
from torchyard.core.queue.nomination import Nominee
from torchyard.core.queue.preemption import Borrowers
from torchyard.core.queue.preemptors import Claims
from torchyard.core.queue.quota import Node, Part
from torchyard.core.queue.requeue import open_lanes
from torchyard.core.queue.resources import Amounts
from torchyard.core.queue.specs import Queue
from torchyard.core.queue.workload_info import Item, Key, revision_of


class Book:
    def __init__(self, labels_of: Labels, *, one_by_one: bool = False) -> None:
        """`one_by_one`: nobody is admitted before the pods of all who were are ready (Kueue's blockAdmission)."""
        self._labels_of, self._one_by_one = labels_of, one_by_one
        self._queues: dict[str, Queue] = {}
        self._cohorts: dict[str, Object] = {}
        self._checks: dict[str, Object] = {}
        self.flavors: dict[str, Flavor] = {}
        self.local: dict[Key, Object] = {}
        self.items: dict[Key, Item] = {}
        self.pools: dict[str, Pool] = {}
        self.cycles: dict[str, list[str]] = {}
        self.outside: dict[Key, Why] = {}  # workloads that no queue admits, and why
        self.awake: dict[str, None] = {}  # pools with something to look at
        self.pending: Counter[Key] = Counter()  # by local queue
        self.changed: set[str] = set()  # pools whose figures are others than before
        self.untold: dict[Key, None] = {}  # of those outside: who was not told why
        self.claims = Claims(self.items)
        self.joined: dict[Lane, None] = {}  # lanes that somebody joined who is to be told what the others were
        self.borrowers = Borrowers(self.neighbours)  # since the last refresh: for those who only look
        self._at_door: dict[Key, dict[Key, Item]] = {}  # workloads by local queue
        self._is_stale = True  # nothing is built yet
        self._neighbours: dict[Node, list[Pool]] = {}
        self._released: dict[Node, None] = {}
        self._left: dict[Node, None] = {}  # where more wait than what is there can serve
        self._again: dict[Node, bool] = {}  # to be looked at once more in this round; whether for reclaim too
        self._unready: set[Key] = set()  # those that hold quota and whose pods are not all ready
        self._held_back: dict[str, None] = {}  # pools whose first waits for those
        self._strict: dict[Node, list[Pool]] = {}  # pools under a root whose order is strict
        self._barred: dict[Node, dict[Lane, Pool]] = {}  # lanes that would borrow what is kept for the first of those

    def put_queue(self, obj: Object) -> None:
        queue = Queue.of(obj)
        if self._queues.get(queue.name) != queue:
            self._queues[queue.name] = queue
            self._is_stale = True

    def put_flavor(self, obj: Object) -> None:
        flavor = Flavor.of(obj)
        if self.flavors.get(flavor.name) != flavor:
            self.flavors[flavor.name] = flavor
            self._is_stale = True

    def put_cohort(self, obj: Object) -> None:
        self._replace(self._cohorts, obj["metadata"]["name"], obj.get("spec") or {})

    def put_check(self, obj: Object) -> None:
        active = find((obj.get("status") or {}).get("conditions") or (), messages.ACTIVE)
        self._replace(self._checks, obj["metadata"]["name"], {"active": active is None or active["status"] == "True"})

    def put_local(self, obj: Object) -> None:
        metadata = obj["metadata"]
        door, spec = (metadata["namespace"], metadata["name"]), obj.get("spec") or {}
        if self.local.get(door) != spec:
            self._change_door(door, spec)

    def _change_door(self, door: Key, spec: Object | None) -> None:
        """Only those who wait at this door are looked at anew: to look at all would cost each door as much as all."""
        known = self.local.get(door)
        doors = [door]
        if known is None or spec is None:  # who asks for a queue that is not there is told which ones are
            doors += (one for one in self._at_door if one[0] == door[0] and one not in self.local and one != door)
        with self._anew(doors):
            if spec is None:
                del self.local[door]
            else:
                self.local[door] = spec
        self.changed.update(one.get("clusterQueue", "") for one in (known, spec) if one is not None)

    @contextmanager
    def _anew(self, doors: Iterable[Key]) -> Iterator[None]:
        """Who waits at these doors is taken out, and comes in again after something changed for them."""
        known = {} if self._is_stale else self._at_door  # all will be looked at anyway
        mine = [one for door in doors for one in known.get(door, {}).values() if not one.place]
        for item in mine:
            self._take_out(item)
        yield
        for item in mine:
            self._bring_in(item)

    def _replace(self, known: dict[Any, Object], name: object, spec: Object) -> None:
        if known.get(name) != spec:
            known[name] = spec
            self._is_stale = True

    def drop(self, kind: str, name: Any) -> None:
        """A piece of configuration is gone; `name` is a key for local queues."""
        if kind == names.LOCAL_QUEUE.kind:
            if name in self.local:
                self._change_door(name, None)
            return
        known: dict[str, dict[Any, Any]] = {
            names.CLUSTER_QUEUE.kind: self._queues,
            names.FLAVOR.kind: self.flavors,
            names.COHORT.kind: self._cohorts,
            names.CHECK.kind: self._checks,
        }
        if known[kind].pop(name, None) is not None:
            self._is_stale = True

    def namespace_changed(self, name: str) -> None:
        """It came, or has other labels: queues that did not take its workloads may do so now, or no more."""
        with self._anew([door for door in self._at_door if door[0] == name]):
            pass

    def put(self, obj: Object, *, again: bool = False) -> Item:
        """A workload as it is now; what is older than what is known changes nothing.

        `again`: what was assumed of it did not come true. Pod sets are exchanged for equal ones that are known.
        """
        metadata = obj["metadata"]
        known = self.items.get((metadata.get("namespace", ""), metadata["name"]))
        is_same = known is not None and known.uid == metadata.get("uid", "")
        revision = revision_of(obj)
        if known is not None and is_same and not again and known.revision >= revision > 0:
            if known.revision == revision:
                known.obj = obj  # the copy that whoever told keeps anyway, instead of one of our own
            return known
        item = Item(obj, known)
        item.share()
        if known is not None and is_same and self._exchange(known, item):
            return item
        self._forget(known)
        self.items[item.key] = item
        self._at_door.setdefault(self.local_queue_of(item), {})[item.key] = item
        self._bring_in(item)
        return item

    def _exchange(self, known: Item, item: Item) -> bool:
        """Most changes of a workload that holds quota leave it as it is: then there is nothing to look at again."""
        pool = self.pools.get(item.place)
        if pool is None or pool.holding.get(item.key) is not known or not known.holds_alike(item):
            return False
        self.items[item.key] = pool.holding[item.key] = item
        self._at_door[self.local_queue_of(item)][item.key] = item
        if item.is_ready:
            self._unready.discard(item.key)
        else:
            self._unready.add(item.key)
        self.changed.add(pool.queue.name)
        return True

    def remove(self, key: Key) -> None:
        self._forget(self.items.pop(key, None))

    def _forget(self, item: Item | None) -> None:
        self._take_out(item)
        if item is not None:
            door = self.local_queue_of(item)
            left = self._at_door[door]
            del left[item.key]
            if not left:
                del self._at_door[door]

    def assume(self, item: Item, queue: str, held: Amounts, now: float) -> None:
        """Count quota as given before the world knows of it."""
        self._take_out(item)
        item.place, item.held, item.reserved_at, item.is_evicted = queue, dict(held), now, False
        self._bring_in(item)

    def retire(self, item: Item) -> None:
        """Another took its place: what it holds is counted there."""
        self._take_out(item)
        item.is_finished = True

    def local_queue_of(self, item: Item) -> Key:
        return item.key[0], item.queue

    def _take_out(self, item: Item | None) -> None:
        if item is None:
            return
        self.outside.pop(item.key, None)
        self.untold.pop(item.key, None)
        if item.place:
            pool = self.pools.get(item.place)
            if pool is not None and pool.holding.pop(item.key, None) is not None:
                pool.node.remove(item.held)
                self._unready.discard(item.key)
                self._released[pool.node.root] = None
                self.changed.add(pool.queue.name)
            return
        pool = self.pool_of(item)
        if pool is not None and item.key in pool.waiting:
            pool.discard(item)
            self.pending[self.local_queue_of(item)] -= 1
            self._wake(pool)
            if pool.queue.is_strict and pool.node.root in self._barred:
                self._again[pool.node.root] = True  # perhaps less is kept for who is first now

    def _bring_in(self, item: Item) -> None:
        if item.is_finished:
            return
        if item.place:
            pool = self.pools.get(item.place)
            if pool is not None:
                pool.holding[item.key] = item
                pool.node.add(item.held)
                if not item.is_ready:
                    self._unready.add(item.key)
                pool.reconsider_weaker(item.priority)
                self._wake(pool)
            return
        if item.is_leaving:
            return
        why, pool = self.why_outside(item), self.pool_of(item)
        if why is not None:
            self.outside[item.key] = why
            if item.told != why[1]:
                self.untold[item.key] = None
            if pool is None or pool.inactive is None or why_not_at_door(item, self.local) is not None:
                return  # else it is counted as one that waits, for the queue itself
        if pool is not None:
            lane = pool.add(item)
            if lane.is_blocked and not item.told:
                self.joined[lane] = None
            self.pending[self.local_queue_of(item)] += 1
            self._wake(pool)

    def _wake(self, pool: Pool) -> None:
        self.awake[pool.queue.name] = None
        self.changed.add(pool.queue.name)

    def _wake_around(self, root: Node, *, reclaim: bool) -> None:
        """Quota was given back under this root: whoever it may help is looked at again."""
        around = self._neighbours.get(root, ())
        for pool in around:
            if self.claims.is_due(pool):
                self.awake[pool.queue.name] = None
        if reclaim:
            for lane, pool in self._barred.pop(root, {}).items():
                lane.is_blocked = False
                self.awake[pool.queue.name] = None
        others = [pool for pool in around if pool not in self.claims]
        opened, is_more = open_lanes(root, others, reclaim=reclaim)
        for pool in opened:
            self.awake[pool.queue.name] = None
        if is_more:
            self._left[root] = None
        else:
            self._left.pop(root, None)

    def claim(self, one: Nominee) -> None:
        """Others give quota back for it. Kueue looks at it again before all others of its queue, until it has it."""
        self.claims.add(one)
        self.rests(one.pool)

    def step_back(self, pool: Pool) -> None:
        """What its first needs is claimed by others: it is looked at again when there is more, or a claim less."""
        self.awake.pop(pool.queue.name, None)
        self.claims.step_back(pool)

    def claim_of(self, pool: Pool, head: tuple[Lane, Item] | None) -> Nominee | None:
        """What the first of a pool was promised, if it is there or still to come; a claim of any other is void."""
        claim = self.claims.of(pool)
        if claim is None or self.claims.holds_for(claim, head):
            return claim
        self.end_claim(pool)
        return None

    def end_claim(self, pool: Pool) -> None:
        self.claims.end(pool)
        self._again[pool.node.root] = True  # what was kept for it others may have

    def kept_from(self, pool: Pool) -> dict[str, Part]:
        """By queue: what nobody else borrows, since the first of that queue waits for it and cannot have it back."""
        around = self._strict.get(pool.node.root, ())
        return {one.queue.name: (one.node, kept) for one in around if one is not pool and (kept := one.kept())}

    def bar(self, one: Nominee) -> None:
        """It would borrow what is kept for others: others of its queue may pass it, as they borrow less or nothing."""
        one.lane.block({}, owed={})
        self._barred.setdefault(one.pool.node.root, {})[one.lane] = one.pool

    def rests(self, pool: Pool) -> None:
        """Nobody of this pool gets any of what is there: it may serve those that were not looked at."""
        self.awake.pop(pool.queue.name, None)
        root = pool.node.root
        if root in self._left:
            self._again.setdefault(root, False)

    @property
    def is_blocked(self) -> bool:
        """Whether nobody is admitted now, however much quota there is."""
        return self._one_by_one and bool(self._unready)

    def hold_back(self, pool: Pool) -> None:
        """Its first fits, and is looked at again when all who were admitted are ready."""
        self.awake.pop(pool.queue.name, None)
        self._held_back[pool.queue.name] = None

    def look_again(self) -> None:
        again, self._again = self._again, {}
        for root, reclaim in again.items():
            self._wake_around(root, reclaim=reclaim)

    def holders(self, namespace: str, queue: str) -> list[Item]:
        """Who holds quota through a local queue or, without a namespace, of a cluster queue."""
        if namespace:
            return [one for one in self._at_door.get((namespace, queue), {}).values() if one.place]
        pool = self.pools.get(queue)
        if pool is None:  # new, and not built yet
            return [one for one in self.items.values() if one.place == queue]
        return list(pool.holding.values())

    def neighbours(self, pool: Pool) -> list[Pool]:
        """The pools that share quota with one, itself included."""
        return self._neighbours.get(pool.node.root, [pool])

    def pool_of(self, item: Item) -> Pool | None:
        local = self.local.get(self.local_queue_of(item))
        return self.pools.get(local.get("clusterQueue", "")) if local else None

    def why_outside(self, item: Item) -> Why | None:
        """Why a workload cannot wait in any queue; None if it can."""
        return why_outside(item, self.local, self.pools, self._labels_of)

    def refresh(self) -> bool:
        """Take note of what was given back; rebuild if the configuration changed. Answers whether it did."""
        released, self._released = self._released, {}
        self.borrowers = Borrowers(self.neighbours)
        if not self.is_blocked:
            self.awake |= self._held_back
            self._held_back = {}
        if not self._is_stale:
            for root in released:
                self._wake_around(root, reclaim=True)
            return False
        self._is_stale = False
        self.pools, self._neighbours, self.cycles = build(self._queues, self.flavors, self._cohorts, self._checks)
        self._strict = {
            root: [one for one in pools if one.queue.is_strict and one.node is not root]
            for root, pools in self._neighbours.items()
        }
        self._left, self._again, self.joined, self._barred = {}, {}, {}, {}
        self.claims.clear()
        self.outside.clear()
        self.pending.clear()
        self.awake = {}
        self._unready.clear()
        for item in self.items.values():
            self._bring_in(item)
        self.awake = dict.fromkeys(self.pools)
        self.changed.update(self.pools)
        self.changed.update(spec.get("clusterQueue", "") for spec in self.local.values())
        return True
