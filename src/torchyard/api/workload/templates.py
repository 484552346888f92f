"""Whether two pod templates are the same, which decides about rollouts."""

from __future__ import annotations

from torchyard.api.diff import semantically_equal
from torchyard.api.objects import Object
from torchyard.api.schema import builtin


def same_template(old: Object | None, new: Object | None) -> bool:
    return semantically_equal(old, new, builtin.definition("io.k8s.api.core.v1.PodTemplateSpec"))
