"""The design of the controllers says of each of them what an event costs."""

from __future__ import annotations

from tests.support.kubernetes import ROOT

from torchyard.yard.controllers import _ATTACHED, BUILDERS


def test_the_table_of_costs_has_every_controller_and_what_it_starts() -> None:
    text = (ROOT / "docs/design/controllers.md").read_text()
    _, _, table = text.partition("| controller | one event costs | how |")
    rows = [line.strip("|").split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    named = {name for row in rows for name in row[0].strip().split(", ")}
    attached = {name for parts in _ATTACHED.values() for name in parts}
    controllers = {name.removesuffix("-controller") for name in (*BUILDERS, *attached)}
    assert controllers - named == set()
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
