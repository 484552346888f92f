"""What the settings of a plane say about it: whether they are valid, what it serves, and which objects it owns."""

from __future__ import annotations

import asyncio

from torchyard.api.access.user_roles import metrics_role, pending_workloads_role, user_roles
from torchyard.api.builtins import builtin_resources
from torchyard.api.errors import YardError
from torchyard.api.jobset.crd import definition_object as jobset_definition
from torchyard.api.names import label_value_problems, subdomain_problems
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.api.queue.crd import definitions as queue_definitions
from torchyard.api.resources import Resource
from torchyard.api.trainjob.crd import definition_object as trainjob_definition
from torchyard.api.trainjob.runtime_crd import definition_objects as runtime_definitions
from torchyard.api.trainjob.runtimes import public_objects
from torchyard.apiserver.subresources import pending_workloads
from torchyard.apiserver.virtual import resource_metrics
from torchyard.yard import python_choice
from torchyard.yard.selection import LOCAL_QUEUES
from torchyard.yard.settings import PlaneSettings


async def check_settings(settings: PlaneSettings) -> None:
    """Check before the start what the parts that start later read, so that a mistake ends the start."""
    _check_names(settings)
    if settings.queue_config is not None:
        from torchyard.yard.controllers import load_queue_config

        load_queue_config(settings.queue_config)
    if settings.node and python_choice.chosen(settings):
        await asyncio.to_thread(python_choice.find_chosen, settings)


def _check_names(settings: PlaneSettings) -> None:
    """Check that the names are valid for a node and a label."""
    problems = {
        "--node-name": subdomain_problems(settings.node_name) or label_value_problems(settings.node_name),
        "--assume-gpu-product": label_value_problems(settings.gpu_product),
    }
    for option, errors in problems.items():
        if errors:
            raise YardError(f"{option}: {errors[0]}", hint="choose a name that meets this rule", code="BadOption")


def node_parts(settings: PlaneSettings) -> frozenset[str]:
    """The parts that come with a node."""
    parts = ("node", *((LOCAL_QUEUES,) if settings.local_queues else ()))
    return frozenset(parts if settings.node else ())


def served_resources(settings: PlaneSettings, chosen: frozenset[str]) -> list[Resource]:
    """The resources served from the start; usage and pending workloads only with a node or queues that provide them."""
    extra = [
        *(resource_metrics.RESOURCES if settings.node else ()),
        *(pending_workloads.RESOURCES if "kueue" in chosen else ()),
    ]
    return [*builtin_resources(), *extra]


def owned_objects(settings: PlaneSettings, chosen: frozenset[str]) -> list[Object]:
    """The definitions of the plane's own kinds, and the roles that let users view and edit them."""
    objects: list[Object] = []
    if "pytorchjob" in chosen:
        objects += [definition_object(), *user_roles("torchyard-training", [definition_object()])]
    if "jobset" in chosen:
        objects += [jobset_definition(), *user_roles("torchyard-jobsets", [jobset_definition()])]
    if "trainjob" in chosen:
        definitions = [trainjob_definition(), *runtime_definitions()]
        objects += [*definitions, *user_roles("torchyard-trainjobs", definitions), *public_objects()]
    if "kueue" in chosen:
        objects += [
            *queue_definitions(),
            *user_roles("torchyard-queues", queue_definitions()),
            pending_workloads_role(),
        ]
    if settings.node:
        objects.append(metrics_role())
    return objects
