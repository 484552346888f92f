"""The wall clock of the plane is set forward and back by hours while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support import faketime
from tests.support.accounts import wait_for_account
from tests.support.faketime import FakeClock
from tests.support.http import Client
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.objects import Object
from torchyard.node.pod.container_stopper import _seconds_left

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/default/token"
TEMPLATE: Object = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
DISCOVERY = "/apis"


def job(name: str, **fields: Any) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": TEMPLATE, **fields},
    }


def touch(admin: Client, path: str, value: str) -> None:
    """Change an object, so that its controller looks at it now."""
    assert admin.patch(path, {"metadata": {"annotations": {"touched": value}}}).status == 200


def issue_token(admin: Client) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    return str(admin.post(TOKEN, request).json["status"]["token"])


def is_accepted(admin: Client, token: str) -> bool:
    return admin.as_user(token).get(DISCOVERY).status != 401


def conditions(admin: Client, name: str) -> list[str]:
    stored = admin.get(f"{JOBS}/{name}").json.get("status", {}).get("conditions") or []
    return [f"{condition['type']}={condition.get('reason', '')}" for condition in stored]


def finish_pods(admin: Client, name: str) -> None:
    pods = [pod for pod in admin.get(PODS).json["items"] if pod["metadata"]["name"].startswith(name)]
    for pod in pods:
        patch = {"status": {"phase": "Succeeded"}}
        admin.patch(f"{PODS}/{pod['metadata']['name']}/status", patch)


@pytest.mark.skipif(faketime.library() is None, reason=faketime.MISSING)
def test_the_plane_survives_jumps_of_hours_in_both_directions(tmp_path: Path) -> None:
    clock = FakeClock(tmp_path)
    plane = Yard(tmp_path / "plane", environment=clock.environment)
    with plane as server:
        admin = server.admin
        wait_for_account(admin)
        assert admin.post(JOBS, job("limited", activeDeadlineSeconds=3600)).status == 201
        assert admin.post(JOBS, job("kept", ttlSecondsAfterFinished=3600)).status == 201
        cron = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}
        cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "hourly"}, "spec": cron}
        assert admin.post(CRON_JOBS, cron_job).status == 201
        eventually(lambda: len(admin.get(PODS).json["items"]) == 2, "the pods")
        finish_pods(admin, "kept")
        eventually(lambda: any(c.startswith("Complete") for c in conditions(admin, "kept")), "the completion")
        early = issue_token(admin)
        assert is_accepted(admin, early)

        clock.set("+3h")
        eventually(lambda: not is_accepted(admin, early), "the expiry of the token")
        late = issue_token(admin)
        assert is_accepted(admin, late)
        for path in (f"{JOBS}/limited", f"{JOBS}/kept", f"{CRON_JOBS}/hourly"):
            touch(admin, path, "forward")
        eventually(lambda: "Failed=DeadlineExceeded" in conditions(admin, "limited"), "the deadline")
        eventually(lambda: admin.get(f"{JOBS}/kept").status == 404, "the end of its time to live")
        eventually(lambda: any("hourly" in name for name in job_names(admin)), "the scheduled job")
        scheduled = len(job_names(admin))

        clock.set("-2h")
        eventually(lambda: not is_accepted(admin, late), "a token of the future")
        assert is_accepted(admin, issue_token(admin))
        touch(admin, f"{CRON_JOBS}/hourly", "back")
        assert admin.post(CONFIG_MAPS, {"metadata": {"name": "back"}}).status == 201
        assert admin.post(JOBS, job("again", activeDeadlineSeconds=3600)).status == 201
        eventually(lambda: any(pod.startswith("again") for pod in pod_names(admin)), "the pod of the new job")
        assert len(job_names(admin)) == scheduled + 1, "an hour that was scheduled is not scheduled again"

        clock.set("+0")
        eventually(lambda: is_accepted(admin, early), "the token that is valid again")
        touch(admin, f"{JOBS}/again", "now")
        assert admin.get("/readyz").status == 200
        eventually(lambda: "Failed=DeadlineExceeded" in conditions(admin, "again"), "the deadline, two hours later")
    assert "Traceback" not in plane.log.read_text()


def job_names(admin: Client) -> list[str]:
    return [item["metadata"]["name"] for item in admin.get(JOBS).json["items"]]


def pod_names(admin: Client) -> list[str]:
    return [item["metadata"]["name"] for item in admin.get(PODS).json["items"]]


@pytest.mark.parametrize(("deletion", "expected"), [("2100-01-01T00:00:00Z", 30.0), ("2000-01-01T00:00:00Z", 1.0)])
def test_a_clock_that_was_set_does_not_change_the_grace_period(deletion: str, expected: float) -> None:
    """Set back, it must not keep a deleted pod running for hours."""
    metadata = {"name": "p", "deletionTimestamp": deletion, "deletionGracePeriodSeconds": 30}
    assert _seconds_left({"metadata": metadata, "spec": {}}) == expected
