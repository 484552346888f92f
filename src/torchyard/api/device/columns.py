"""Table columns of the kinds of resource.k8s.io."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import AGE, NAME, age_of, name_of


def _plain_cells(obj: Object, now: datetime) -> list[Cell]:
    return [name_of(obj), age_of(obj, now)]


PLAIN = Columns((NAME, AGE), _plain_cells)


def _claim_cells(claim: Object, now: datetime) -> list[Cell]:
    status = claim.get("status") or {}
    states = [
        word
        for word, holds in (
            ("deleted", "deletionTimestamp" in claim["metadata"]),
            ("allocated", status.get("allocation")),
            ("reserved", status.get("reservedFor")),
        )
        if holds
    ]
    return [name_of(claim), ",".join(states) or "pending", age_of(claim, now)]


RESOURCE_CLAIMS = Columns((NAME, Column("State", description="The state of the claim."), AGE), _claim_cells)


def _slice_cells(resource_slice: Object, now: datetime) -> list[Cell]:
    spec = resource_slice.get("spec") or {}
    return [
        name_of(resource_slice),
        spec.get("nodeName") or "",
        spec.get("driver") or "",
        (spec.get("pool") or {}).get("name") or "",
        age_of(resource_slice, now),
    ]


RESOURCE_SLICES = Columns(
    (
        NAME,
        Column("Node", description="The node of the devices."),
        Column("Driver", description="The driver that publishes the slice."),
        Column("Pool", description="The pool of the devices."),
        AGE,
    ),
    _slice_cells,
)
