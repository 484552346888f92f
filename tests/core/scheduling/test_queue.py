"""The queue of waiting pods: what is tried, in which order, and what a change makes worth another try."""

from __future__ import annotations

from typing import Any

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.api.volume import messages as volume_messages
from torchyard.core.scheduling.cache import SchedulerCache
from torchyard.core.scheduling.node_info import NodeInfo
from torchyard.core.scheduling.queue import SchedulingQueue
from torchyard.core.scheduling.schedule import GANG_NAME, GANG_SIZE, Unschedulable, schedule_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_CPU = Unschedulable("no room", reasons=frozenset((messages.insufficient("cpu"),)))


def _pod(name: str, cpu: str = "1", *, labels: dict[str, str] | None = None, priority: int = 0, **spec: Any) -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "uid": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if labels:
        metadata["labels"] = labels  # type: ignore[assignment]
    return {"metadata": metadata, "spec": {"containers": [container], "priority": priority, **spec}}


def _node(name: str = "machine", cpu: str = "4", **spec: Any) -> Object:
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "pods": "100"}, "conditions": [ready]},
    }


def _claims(pod: Object) -> list[str]:
    return [volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"].get("volumes") or ()]


def _queue(*pods: Object) -> SchedulingQueue:
    queue = SchedulingQueue(_claims)
    for pod in pods:
        queue.put(pod)
    return queue


def _heads(queue: SchedulingQueue, answer: Unschedulable = NO_CPU) -> list[str]:
    """The pods that are tried when none of them fits."""
    names = []
    while (pod_class := queue.pop()) is not None:
        head = pod_class.head()
        assert head is not None
        names.append(head["metadata"]["name"])
        queue.set_answer(pod_class, answer)
    return names


def _reports(queue: SchedulingQueue) -> dict[str, str]:
    reports = {}
    while (report := queue.next_report()) is not None:
        reports[report[0]["metadata"]["name"]] = report[1]
    return reports


def test_of_equal_pods_that_do_not_fit_one_is_tried_and_all_get_the_answer() -> None:
    queue = _queue(*(_pod(f"p{number:04}") for number in range(1000)))
    assert _heads(queue) == ["p0000"]
    assert _reports(queue) == {f"p{number:04}": "no room" for number in range(1000)}
    queue.put(_pod("late"))
    assert _heads(queue) == []
    assert _reports(queue) == {"late": "no room"}


def test_pods_are_tried_by_priority_and_age_across_classes() -> None:
    queue = _queue(_pod("b", "2"), _pod("a", "1"), _pod("urgent", "3", priority=9))
    assert _heads(queue) == ["urgent", "a", "b"]


def test_a_status_that_changes_does_not_change_the_class() -> None:
    pod = _pod("a")
    queue = _queue(pod, _pod("b"))
    _heads(queue)
    assert set(_reports(queue)) == {"a", "b"}
    queue.put({**pod, "status": {"phase": "Pending"}})
    assert (queue.class_count, _reports(queue), _heads(queue)) == (1, {}, [])
    queue.put({**pod, "metadata": {**pod["metadata"], "annotations": {GANG_NAME: "g"}}})
    assert queue.class_count == 2


def test_a_report_is_due_when_the_answer_changes_and_only_then() -> None:
    queue = _queue(_pod("a"), _pod("b"))
    assert _heads(queue) == ["a"]
    assert set(_reports(queue)) == {"a", "b"}
    queue.nodes_changed()
    assert _heads(queue) == ["a"]
    assert _reports(queue) == {}
    queue.nodes_changed()
    assert _heads(queue, Unschedulable("another reason")) == ["a"]
    assert _reports(queue) == {"a": "another reason", "b": "another reason"}


def test_freed_room_wakes_only_pods_that_fit_into_it() -> None:
    queue = _queue(_pod("small", "1"), _pod("large", "8"), _pod("elsewhere", "2", nodeSelector={"disk": "ssd"}))
    while (pod_class := queue.pop()) is not None:
        is_elsewhere = pod_class.head() == _pod("elsewhere", "2", nodeSelector={"disk": "ssd"})
        reason = messages.NODE_AFFINITY if is_elsewhere else messages.insufficient("cpu")
        queue.set_answer(pod_class, Unschedulable("no", reasons=frozenset((reason,))))
    queue.room_freed(NodeInfo(_node(cpu="4")))
    assert _heads(queue) == ["small"]


def test_a_claim_wakes_the_pods_that_use_it() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    queue = _queue(_pod("user", volumes=[volume]), _pod("other"))
    _heads(queue)
    queue.claim_changed("n", "data")
    queue.claim_changed("n", "unused")
    assert _heads(queue) == ["user"]


def test_a_new_member_or_a_lost_one_wakes_a_gang() -> None:
    first, second = _pod("g0"), _pod("g1")
    for pod in (first, second):
        pod["metadata"]["annotations"] = {GANG_NAME: "gang"}
    queue = _queue(first)
    assert _heads(queue) == ["g0"]
    queue.put(second)
    assert _heads(queue) == ["g0"]
    queue.remove("g0")
    assert _heads(queue) == ["g1"]


def _gang(name: str, *cpus: str, claims: tuple[str, ...] = ()) -> list[Object]:
    members = [_pod(f"{name}-{number}", cpu) for number, cpu in enumerate(cpus)]
    for pod in members:
        pod["metadata"]["annotations"] = {GANG_NAME: name, GANG_SIZE: str(len(cpus))}
    for pod, claim in zip(reversed(members), claims, strict=False):
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return members


def test_of_equal_gangs_one_is_tried_when_room_is_freed() -> None:
    queue = _queue(*(pod for number in range(100) for pod in _gang(f"g{number:03}", "1", "2")))
    assert len(_heads(queue)) == 100
    queue.room_freed(NodeInfo(_node(cpu="4")))
    assert _heads(queue) == ["g000-0"]
    queue.nodes_changed()
    assert _heads(queue) == ["g000-0"]


def test_after_a_gang_that_fits_the_next_equal_one_is_tried() -> None:
    queue = _queue(*(pod for number in range(3) for pod in _gang(f"g{number}", "1", "1")))
    _heads(queue)
    queue.room_freed(NodeInfo(_node(cpu="4")))
    pod_class = queue.pop()
    assert pod_class is not None
    for uid in list(pod_class.pods):
        queue.remove(uid)
    assert _heads(queue) == ["g1-0"]
    assert queue.pop() is None


def test_a_new_answer_to_one_gang_is_the_answer_to_its_equals() -> None:
    queue = _queue(*(pod for name in "ab" for pod in _gang(name, "1", "1")), *_gang("other", "1", "1", "1"))
    _heads(queue)
    assert set(_reports(queue).values()) == {"no room"}
    queue.room_freed(NodeInfo(_node(cpu="1")))
    assert _heads(queue, Unschedulable("less room", reasons=NO_CPU.reasons)) == ["a-0", "other-0"]
    assert len(_reports(queue)) == 7
    queue.room_freed(NodeInfo(_node(cpu="1")))
    assert _heads(queue, Unschedulable("less room", reasons=NO_CPU.reasons)) == ["a-0", "other-0"]
    assert _reports(queue) == {}


def test_room_that_no_member_fits_into_does_not_wake_a_gang() -> None:
    queue = _queue(*_gang("g", "2", "3"))
    _heads(queue)
    queue.room_freed(NodeInfo(_node(cpu="1")))
    assert _heads(queue) == []
    queue.room_freed(NodeInfo(_node(cpu="2")))
    assert _heads(queue) == ["g-0"]


def test_the_claims_of_every_member_wake_a_gang() -> None:
    queue = _queue(*_gang("g", "1", "1", claims=("data",)))
    _heads(queue)
    queue.claim_changed("n", "data")
    assert _heads(queue) == ["g-0"]


def test_room_does_not_wake_a_pod_that_waits_for_its_claim() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    queue = _queue(_pod("user", volumes=[volume]))
    _heads(queue, Unschedulable("no claim", reasons=frozenset(("pod has unbound immediate PersistentVolumeClaims",))))
    queue.room_freed(NodeInfo(_node()))
    assert _heads(queue) == []
    queue.claim_changed("n", "data")
    _heads(queue, Unschedulable("in use", reasons=frozenset((volume_messages.ONE_POD,))))
    queue.room_freed(NodeInfo(_node(cpu="0")))
    assert _heads(queue) == ["user"]


def test_pods_that_want_to_be_near_others_are_tried_when_a_pod_is_assigned() -> None:
    queue = _queue(_pod("lonely"), _pod("large", "8"))
    while (pod_class := queue.pop()) is not None:
        is_lonely = "lonely" in pod_class.pods
        reason = messages.POD_AFFINITY if is_lonely else messages.insufficient("cpu")
        queue.set_answer(pod_class, Unschedulable("no", reasons=frozenset((reason,))))
    queue.pod_assigned()
    assert _heads(queue) == ["lonely"]


def test_pods_that_others_exclude_by_labels_share_no_answer_with_pods_of_other_labels() -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    resident = _pod("resident", affinity={"podAntiAffinity": {REQUIRED: [apart]}})
    nodes = [NodeInfo.of(_node(), [resident])]
    web, batch = _pod("a-web", labels={"app": "web"}), _pod("b-batch", labels={"app": "batch"})
    queue = _queue(web, batch)
    answers: dict[str, str | Unschedulable] = {}
    while (pod_class := queue.pop()) is not None:
        head = pod_class.head()
        assert head is not None
        answer = answers[head["metadata"]["name"]] = schedule_pod(head, nodes)
        if isinstance(answer, Unschedulable):
            queue.set_answer(pod_class, answer)
        else:
            queue.remove(head["metadata"]["uid"])
    assert answers["b-batch"] == "machine"
    assert isinstance(answers["a-web"], Unschedulable)
    assert set(_reports(queue)) == {"a-web"}


def test_removed_pods_leave_nothing_behind() -> None:
    queue = _queue(*(_pod(f"p{number}", str(number + 1)) for number in range(50)))
    _heads(queue)
    for number in range(50):
        queue.remove(f"p{number}")
    assert (len(queue), queue.class_count, queue.pop(), queue.next_report()) == (0, 0, None, None)


def test_a_heartbeat_of_a_node_wakes_nothing() -> None:
    cache = SchedulerCache()
    assert cache.put_node(_node())
    heartbeat = _node()
    heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:10Z"
    assert not cache.put_node(heartbeat)
    assert cache.put_node(_node(cpu="8"))


def test_the_cache_counts_pods_whether_they_come_before_or_after_their_node() -> None:
    cache = SchedulerCache()
    bound = _pod("bound", "3", nodeName="machine")
    assert cache.put_pod(bound)
    cache.put_node(_node())
    cache.assume(_pod("assumed", "1"), "machine")
    (info,) = cache.nodes()
    assert info.used == {"cpu": 4000, "pods": 2000}
    assert not cache.put_pod(_pod("assumed", "1", nodeName="machine")), "the binding was expected"
    assert not cache.is_assumed("assumed")
    assert cache.remove_pod("bound") is info
    assert info.used == {"cpu": 1000, "pods": 1000}
    assert cache.forget("assumed") is None, "it is bound"
