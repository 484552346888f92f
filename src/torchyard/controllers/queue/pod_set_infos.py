"""What an admission, its flavors and its admission checks add to the pods of each pod set."""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.api.names import label_value_problems
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.integrations import CannotStart, PodSetInfo


def pod_set_infos(workload: Object, flavors: Mapping[str, Flavor]) -> list[PodSetInfo]:
    """Raises `CannotStart` if a flavor does not exist any more."""
    admission = workload["status"]["admission"]
    queue_name = workload["spec"].get("queueName", "")
    infos: list[PodSetInfo] = []
    for assignment in admission["podSetAssignments"]:
        labels = {
            names.POD_SET: assignment["name"],
            names.POD_LOCAL_QUEUE: queue_name,
            names.POD_CLUSTER_QUEUE: admission["clusterQueue"],
        }
        labels = {key: value for key, value in labels.items() if not label_value_problems(value)}
        info = PodSetInfo(assignment["name"], assignment.get("count", 0), labels=labels)
        for name in sorted(set((assignment.get("flavors") or {}).values())):
            flavor = flavors.get(name)
            if flavor is None:
                raise CannotStart(messages.flavor_not_found(name))
            info.node_selector.update(flavor.node_labels)
            info.tolerations.extend(flavor.tolerations)
        for check in workload["status"].get("admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update["name"] == assignment["name"]:
                    info.node_selector.update(update.get("nodeSelector") or {})
                    info.labels.update(update.get("labels") or {})
                    info.annotations.update(update.get("annotations") or {})
                    info.tolerations.extend(update.get("tolerations") or ())
        infos.append(info)
    return infos
