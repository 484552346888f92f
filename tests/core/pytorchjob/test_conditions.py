"""The rules by which conditions are set, replace each other and become final."""

from __future__ import annotations

from tests.support.pytorchjobs import NOW, at, conditions

from torchyard.api.pytorchjob import messages
from torchyard.api.times import to_rfc3339
from torchyard.core.pytorchjob.status import PyTorchJobStatus


def test_running_and_restarting_exclude_each_other() -> None:
    """Row U14."""
    status = PyTorchJobStatus(None, NOW)
    for kind in (messages.CREATED, messages.RUNNING):
        status.set(kind, f"PyTorchJob{kind}", "")
    assert conditions(status.object()) == [("Created", "True"), ("Running", "True")]
    status.set(messages.RESTARTING, messages.IS_RESTARTING, "")
    assert conditions(status.object()) == [("Created", "True"), ("Restarting", "True")]
    status.set(messages.RUNNING, messages.IS_RUNNING, "")
    assert conditions(status.object()) == [("Created", "True"), ("Running", "True")]
    status.set(messages.FAILED, messages.HAS_FAILED, "")
    assert conditions(status.object()) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]


def test_setting_the_same_condition_again_is_no_change() -> None:
    status = PyTorchJobStatus(None, NOW)
    assert status.set(messages.RUNNING, messages.IS_RUNNING, "one")
    assert not status.set(messages.RUNNING, messages.IS_RUNNING, "two")
    assert status.conditions[0]["message"] == "one"


def test_another_reason_keeps_the_time_of_the_transition_and_another_status_does_not() -> None:
    first = PyTorchJobStatus(None, NOW)
    first.set(messages.SUSPENDED, messages.IS_SUSPENDED, "")
    later = PyTorchJobStatus(first.object(), at(5))
    later.set(messages.SUSPENDED, "Other", "")
    assert later.conditions[0]["lastTransitionTime"] == to_rfc3339(NOW)
    assert later.conditions[0]["lastUpdateTime"] == to_rfc3339(at(5))
    later.set(messages.SUSPENDED, messages.IS_RESUMED, "", status="False")
    assert later.conditions[0]["lastTransitionTime"] == to_rfc3339(at(5))


def test_running_becomes_false_and_keeps_its_message() -> None:
    first = PyTorchJobStatus(None, NOW)
    first.set(messages.RUNNING, messages.IS_RUNNING, "it runs")
    later = PyTorchJobStatus(first.object(), at(5))
    later.set(messages.SUCCEEDED, messages.HAS_SUCCEEDED, "")
    assert later.conditions[0] == {**first.conditions[0], "status": "False"}
    assert later.completion_time == at(5)


def test_terminal_conditions_are_final() -> None:
    for kind in messages.TERMINAL:
        status = PyTorchJobStatus(None, NOW)
        status.set(kind, "R", "")
        before = status.object()
        assert not status.set(messages.RUNNING, messages.IS_RUNNING, "")
        assert not status.set(messages.FAILED, "Other", "")
        assert status.object() == before
