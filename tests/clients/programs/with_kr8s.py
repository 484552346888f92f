"""kr8s: objects with methods, merge patches, its own watches."""

from __future__ import annotations

import sys
import threading

import kr8s
from kr8s.objects import ConfigMap, Pod, new_class

NAMESPACE = sys.argv[1]


def main() -> None:
    api = kr8s.api(namespace=NAMESPACE)
    assert api.version()["major"] == "1"
    created = ConfigMap(
        {"metadata": {"name": "a", "namespace": NAMESPACE, "labels": {"app": "x"}}, "data": {"k": "1"}}, api=api
    )
    created.create()
    assert created.exists()
    pod = Pod(
        {
            "metadata": {"name": "p", "namespace": NAMESPACE},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        },
        api=api,
    )
    pod.create()
    assert pod.status.phase == "Pending"
    try:
        Pod({"metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"containers": []}}, api=api).create()
    except kr8s.ServerError as error:
        assert "Required value" in str(error)
    else:
        raise AssertionError("a pod without containers was taken")
    print("create")

    assert [item.name for item in api.get("configmaps", namespace=NAMESPACE, label_selector={"app": "x"})] == ["a"]
    assert [item.name for item in api.get("pods", namespace=NAMESPACE)] == ["p"]
    print("list")

    changing = threading.Timer(0.3, lambda: created.patch({"data": {"k": "2"}}))
    changing.start()
    for event, config_map in api.watch("configmaps", namespace=NAMESPACE, label_selector={"app": "x"}):
        if event == "MODIFIED":
            assert config_map.data.k == "2"
            break
    changing.join()
    print("watch")

    created.label({"b": "1"})
    created.annotate({"note": "hello"})
    created.refresh()
    assert (created.labels["b"], created.annotations["note"]) == ("1", "hello")
    print("patch")

    Lease = new_class(kind="Lease", version="coordination.k8s.io/v1", namespaced=True)
    lease = Lease({"metadata": {"name": "l", "namespace": NAMESPACE}, "spec": {"holderIdentity": "me"}}, api=api)
    lease.create()
    lease.patch({"spec": {"holderIdentity": "you"}})
    assert lease.spec.holderIdentity == "you"
    print("apply")

    pod.delete(grace_period=0)
    created.delete()
    created.wait("delete", timeout=20)
    assert not created.exists()
    print("delete")


main()
