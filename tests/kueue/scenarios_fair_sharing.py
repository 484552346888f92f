"""Who gets unused quota with fair sharing, and what statuses show. These need a configuration, so they run apart."""

from __future__ import annotations

import time

from tests.kueue.harness import Observation, Scenario, cpu_group, scenario_of

CONFIGURATION = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}
_RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
_LIMIT = 60.0
_POLL = 0.2


class FairScenario(Scenario):
    """Observations have the shares of the queues and cohorts, too. `quiet`: seconds without a change."""

    quiet = 1.6
    cohorts: tuple[str, ...] = ()

    def look(self) -> None:
        self.observe(quiet=self.quiet)
        number = len(self.results)
        wanted = self._expected[number] if self._expected is not None and number < len(self._expected) else None
        shares, since = self._shares(), time.monotonic()
        deadline = since + _LIMIT
        while shares != wanted and time.monotonic() < deadline:
            if wanted is None and time.monotonic() - since > self.quiet:
                break
            time.sleep(_POLL)
            current = self._shares()
            if current != shares:
                shares, since = current, time.monotonic()
        self.results.append(shares)

    def _shares(self) -> Observation:
        kinds = {"ClusterQueue": self._queues, "Cohort": self.cohorts}
        objects = {name: self.get(kind, name) or {} for kind, names in kinds.items() for name in names}
        return {name: (obj.get("status") or {}).get("fairSharing") for name, obj in objects.items()}


def _team(s: Scenario, name: str, cpus: int = 0, weight: str = "1", cohort: str = "all") -> None:
    s.cluster_queue(name, cpu_group(cpus), cohort=cohort, preemption=_RECLAIM, fairSharing={"weight": weight})


def _base(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")


@scenario_of(FairScenario)
def weights_decide_how_much_is_borrowed(s: FairScenario) -> None:
    """The example of the documentation."""
    _base(s)
    s.cohort("all")
    s.cohorts = ("all",)
    for name, cpus, weight in (("reserve", 6, "1"), ("vision", 0, "2"), ("speech", 0, "1")):
        _team(s, name, cpus, weight)
    for number in range(3):
        s.workload(f"s{number}", "speech", cpu=2)
        s.look()
    for number in range(3):
        s.workload(f"v{number}", "vision", cpu=2)
        s.look()
    s.finish("s0")
    s.look()


@scenario_of(FairScenario)
def owner_reclaims_from_the_largest_share(s: FairScenario) -> None:
    _base(s)
    s.cohort("all")
    for name, cpus, weight in (("owner", 6, "1"), ("a", 0, "1"), ("b", 0, "0")):
        _team(s, name, cpus, weight)
    s.workload("a0", "a", cpu=3)
    s.workload("b0", "b", cpu=2)
    s.look()
    s.workload("own", "owner", cpu=2)
    s.look()
    s.workload("own-too", "owner", cpu=3)
    s.look()


@scenario_of(FairScenario)
def shares_are_compared_at_every_level(s: FairScenario) -> None:
    _base(s)
    s.cohort("all")
    s.cohort("left", "all", fairSharing={"weight": "1"})
    s.cohort("right", "all", fairSharing={"weight": "1"})
    s.cohorts = ("left", "right")
    _team(s, "owner", 8)
    _team(s, "a", cohort="left")
    _team(s, "b", cohort="left")
    _team(s, "c", cohort="right")
    for name in ("a0", "b0", "a1", "b1"):
        s.workload(name, name[0], cpu=2)
    s.look()
    for name in ("c0", "c1", "c2"):
        s.workload(name, "c", cpu=2)
        s.look()
