"""Validation of the pod templates of workloads, as Kueue's schema and webhook do it.

The CustomResourceDefinition does not have the fields of pods: a workload is written several times in its life, but its
templates are checked only when they are new.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from torchyard.api import field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.schema import builtin
from torchyard.api.schema.decode import DecodeError, decode

# The lists of a container whose items have a key. As in pods, and other than in Kueue, it need not be unique.
_CONTAINER_LISTS = {"ports": "containerPort", "env": "name"}


def validate_pod_templates(pod_sets: Iterable[Object]) -> list[FieldError]:
    errs: list[FieldError] = []
    for index, pod_set in enumerate(pod_sets):
        path = f"spec.podSets[{index}].template"
        try:
            decode(copy.deepcopy(pod_set["template"]), builtin.definition("io.k8s.api.core.v1.PodTemplateSpec"))
        except DecodeError as error:
            errs.append(field_errors.invalid(path, "object", str(error)))
        else:
            _check_template(pod_set["template"], path, errs)
    return errs


def _check_template(template: Object, path: str, errs: list[FieldError]) -> None:
    metadata, spec = template.get("metadata") or {}, template.get("spec")
    errs.extend(any_names.validate_labels(metadata.get("labels"), f"{path}.metadata.labels"))
    errs.extend(any_names.validate_annotations(metadata.get("annotations"), f"{path}.metadata.annotations"))
    if spec is None:
        return
    if spec.get("containers") is None:
        errs.append(field_errors.required(f"{path}.spec.containers", "the template of a pod needs a container"))
    if spec.get("os") is not None:
        _check_key(spec["os"], "name", f"{path}.spec.os", errs)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration is None:
            errs.append(field_errors.invalid(f"{path}.spec.tolerations[{index}]", None, "must be an object"))
    for kind in ("containers", "initContainers"):
        at, known = f"{path}.spec.{kind}", set()
        for index, container in enumerate(spec.get(kind) or ()):
            _check_key(container, "name", f"{at}[{index}]", errs)
            name = (container or {}).get("name")
            if name in known:
                errs.append(field_errors.duplicate(f"{at}[{index}].name", name))
            known.add(name or "")
            for field, key in _CONTAINER_LISTS.items():
                for position, item in enumerate((container or {}).get(field) or ()):
                    _check_key(item, key, f"{at}[{index}].{field}[{position}]", errs)


def _check_key(item: Object | None, key: str, path: str, errs: list[FieldError]) -> None:
    if (item or {}).get(key) is None:
        errs.append(field_errors.required(f"{path}.{key}"))
