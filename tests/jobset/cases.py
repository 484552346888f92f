"""Random JobSets and what happens to them: the same cases run on the plane and ran with upstream's manager.

The Jobs have another manager, so no Job controller touches them: the test writes their statuses. A step is one
operation; after it the server gets the time to react. An operation on a Job that does not exist is part of a case: the
answer is compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
MANAGER = "tests.torchyard.dev/hand"
HOLD = "tests.torchyard.dev/hold"
NAME = "js"
RANDOM_CASES = 170
RESTART_JOB_CASES = 40
_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes")
_MESSAGES = ("Job has reached the specified backoff limit", "Container failed with exit code 42", "host maintenance")
_RESTART_JOB = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
_RESTART_JOBSET = ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")


@dataclass(frozen=True)
class Case:
    name: str
    jobset: Object
    steps: list[Object] = field(default_factory=list)


def random_cases() -> list[Case]:
    """Cases with upstream's default feature gates."""
    return [_Generator(number, _RESTART_JOBSET).case(f"c{number:03}") for number in range(RANDOM_CASES)]


def restart_job_cases() -> list[Case]:
    """Cases for upstream's feature gate RestartJob."""
    actions = (*_RESTART_JOB, *_RESTART_JOB, *_RESTART_JOBSET)
    return [_Generator(5000 + number, actions).case(f"r{number:03}") for number in range(RESTART_JOB_CASES)]


class _Generator:
    def __init__(self, seed: int, actions: tuple[str, ...]) -> None:
        self.random = random.Random(seed)
        self._actions = actions

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def case(self, name: str) -> Case:
        jobs = [self._replicated_job(letter) for letter in "abc"[: self.random.choice((1, 1, 2, 2, 2, 3))]]
        names = [job["name"] for job in jobs]
        spec: Object = {"replicatedJobs": jobs}
        order = self.random.random()
        if order < 0.2:
            spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        elif order < 0.5:
            self._depend(jobs)
        if self.chance(0.3):
            spec["suspend"] = self.chance(0.8)
        if self.chance(0.4):
            spec["successPolicy"] = {"operator": self.random.choice(("All", "Any"))}
            if self.chance(0.5):
                spec["successPolicy"]["targetReplicatedJobs"] = [self.random.choice(names)]
        if self.chance(0.7) or self._actions[0] in _RESTART_JOB:
            spec["failurePolicy"] = self._failure_policy(names)
        self._rarely(spec, jobs)
        metadata: Object = {"name": NAME}
        if self.chance(0.08):
            metadata["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
            if self.chance(0.5):
                metadata["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = "true"
        return Case(name, {"metadata": metadata, "spec": spec}, self._steps(spec))

    def _replicated_job(self, name: str) -> Object:
        container: Object = {"name": "main", "image": "busybox:1", "command": ["true"]}
        pod: Object = {"containers": [container], "restartPolicy": "Never"}
        if self.chance(0.15):
            pod["nodeSelector"] = {"pool": name}
        if self.chance(0.1):
            pod["tolerations"] = [{"key": "pool", "operator": "Exists"}]
        template: Object = {"spec": pod}
        if self.chance(0.2):
            template["metadata"] = {"labels": {"tier": name}, "annotations": {"note": name}}
        job: Object = {"managedBy": MANAGER, "backoffLimit": self.random.choice((0, 3)), "template": template}
        if self.chance(0.7):
            job["parallelism"] = self.random.randint(1, 3)
            if self.chance(0.8):
                job["completions"] = self.random.randint(1, 3)
        if self.chance(0.1):
            job["completionMode"] = "NonIndexed"
        result: Object = {"name": name, "template": {"spec": job}}
        if self.chance(0.15):
            result["template"]["metadata"] = {"labels": {"role": name}, "annotations": {"owner": "me"}}
        if self.chance(0.7):
            result["replicas"] = self.random.choice((0, 1, 1, 2, 2, 3))
        if self.chance(0.2):
            result["groupName"] = self.random.choice(("one", "two"))
        return result

    def _depend(self, jobs: list[Object]) -> None:
        for index in range(1, len(jobs)):
            earlier = [job["name"] for job in jobs[:index]]
            chosen = self.random.sample(earlier, self.random.randint(1, len(earlier)))
            jobs[index]["dependsOn"] = [
                {"name": name, "status": self.random.choice(("Ready", "Complete"))} for name in chosen
            ]

    def _failure_policy(self, names: list[str]) -> Object:
        policy: Object = {"maxRestarts": self.random.choice((0, 1, 1, 2))}
        if self.chance(0.4):
            policy["restartStrategy"] = self.random.choice(("Recreate", "BlockingRecreate"))
        rules = []
        for number in range(self.random.choice((0, 1, 1, 2, 3))):
            rule: Object = {"action": self.random.choice(self._actions), "name": f"rule{number}"}
            if self.chance(0.4):
                rule["onJobFailureReasons"] = self.random.sample(_REASONS, self.random.randint(1, 2))
            if self.chance(0.3):
                patterns = ("exit code [0-9]+", "^host", "backoff limit$", "(?i)MAINTENANCE")
                rule["onJobFailureMessagePatterns"] = self.random.sample(patterns, self.random.randint(1, 2))
            if self.chance(0.3):
                rule["targetReplicatedJobs"] = [self.random.choice(names)]
            rules.append(rule)
        if rules:
            policy["rules"] = rules
        return policy

    def _rarely(self, spec: Object, jobs: list[Object]) -> None:
        if self.chance(0.2):
            choices = ({"subdomain": "net"}, {"enableDNSHostnames": False}, {"publishNotReadyAddresses": False})
            spec["network"] = dict(self.random.choice(choices))
        if self.chance(0.15):
            job = self.random.choice(jobs)
            if job.get("replicas", 1):
                job["template"]["spec"] |= {"completions": 2, "completionMode": "Indexed"}
                spec["coordinator"] = {"replicatedJob": job["name"]}
                if self.chance(0.5):
                    spec["coordinator"]["podIndex"] = 1
        if self.chance(0.1):
            spec["ttlSecondsAfterFinished"] = self.random.choice((0, 100_000))
        if self.chance(0.08):
            managers = ("jobset.sigs.k8s.io/jobset-controller", "example.com/other")
            spec["managedBy"] = self.random.choice(managers)
        if self.chance(0.12):
            self._claim(spec, self.random.choice(jobs))

    def _claim(self, spec: Object, job: Object) -> None:
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        policy: Object = {"templates": [{"metadata": {"name": "data", "labels": {"kind": "data"}}, "spec": claim}]}
        if self.chance(0.6):
            policy["retentionPolicy"] = {"whenDeleted": self.random.choice(("Delete", "Retain"))}
        spec["volumeClaimPolicies"] = [policy]
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]

    def _steps(self, spec: Object) -> list[Object]:
        jobs = [
            f"{NAME}-{job['name']}-{index}" for job in spec["replicatedJobs"] for index in range(job.get("replicas", 1))
        ]
        steps: list[Object] = []
        suspended, held = bool(spec.get("suspend")), ""
        for _ in range(self.random.randint(2, 6)):
            choice = self.random.random()
            if not jobs or choice < 0.12 or (suspended and choice < 0.5):
                suspended = not suspended
                steps.append(self._suspension(spec, suspended))
            elif choice < 0.2 and not held:
                held = self.random.choice(jobs)
                steps.append({"do": "hold", "job": held})
            elif choice < 0.28 and held:
                steps.append({"do": "release", "job": held})
                held = ""
            elif choice < 0.32:
                steps.append({"do": "delete", "job": self.random.choice(jobs)})
            else:
                steps.append(self._job_status(self.random.choice(jobs)))
        if self.chance(0.3) and not held:  # to the end
            steps += [{"do": "status", "job": job, "to": "complete"} for job in jobs[:4]]
        if held:
            steps.append({"do": "release", "job": held})
        return steps

    def _suspension(self, spec: Object, suspend: bool) -> Object:
        step: Object = {"do": "suspend" if suspend else "resume"}
        if self.chance(0.5):
            step["pod"] = {"nodeSelector": {"zone": "z1"}, "tolerations": [{"key": "zone", "operator": "Exists"}]}
            step["labels"] = {"queue": "fast"}
        return step

    def _job_status(self, job: str) -> Object:
        to = self.random.choice(("active", "ready", "ready", "complete", "complete", "failed", "failed", "idle"))
        step: Object = {"do": "status", "job": job, "to": to}
        if to == "failed":
            step |= {"reason": self.random.choice(_REASONS), "message": self.random.choice(_MESSAGES)}
        return step
