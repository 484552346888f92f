"""PyTorch's own examples and one of Accelerate, written anew: with three changed lines they are elastic."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import socket
from pathlib import Path

import pytest
from tests.elastic.forked_workers import ForkServer, SmallJob
from tests.elastic.zoo_programs import PROGRAMS, digest_of

from torchyard.elastic.chaos import count_applied_records

pytestmark = pytest.mark.train
EXAMPLES = ["mnist", "imagenet", "mingpt", "accelerated"]
FOLDER = PROGRAMS / "examples"
STEPS_PER_EPOCH = 5


@pytest.fixture(autouse=True)
def packages(request: pytest.FixtureRequest) -> None:
    if "accelerated" in request.node.name and importlib.util.find_spec("accelerate") is None:
        pytest.skip("the package accelerate is not installed in this environment (see frameworks-venv in the Makefile)")


def statements(path: Path) -> list[str]:
    """The lines of a program, each statement in one, without comments."""
    return ast.unparse(ast.parse(path.read_text())).splitlines()[1:]


def is_shortened(line: str, earlier: list[str]) -> bool:
    """Whether a line is an earlier one that has only lost something, such as `sampler=DistributedSampler(...)`."""

    def within(text: str, longer: str) -> bool:
        characters = iter(longer)
        return all(character in characters for character in text)

    return any(within(line, longer) for longer in earlier)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_ddp_script_changes_at_most_three_lines(name: str) -> None:
    """Beside them it only loses what DDP alone needs."""
    before, after = (statements(FOLDER / file) for file in (f"{name}_ddp.py", f"{name}.py"))
    difference = list(difflib.ndiff(before, after))
    removed = [line[2:] for line in difference if line.startswith("- ")]
    added = [line[2:] for line in difference if line.startswith("+ ")]
    changed = [line for line in added if not is_shortened(line, removed)]
    assert len(changed) == 3, changed


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_script_trains_with_ddp(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "ZOO_HOLD": ""}
    environment |= {"EXAMPLE_FOLDER": str(tmp_path), "TORCHYARD_ELASTIC_COORDINATOR": "", "GLOO_SOCKET_IFNAME": "lo"}
    output = tmp_path / "output"
    pids = [
        fork_server.fork([str(FOLDER / f"{name}_ddp.py")], environment | {"RANK": str(rank)}, output)
        for rank in range(2)
    ]
    assert [fork_server.wait(pid) for pid in pids] == [0, 0], output.read_text()
    assert digest_of(output.read_text()).startswith("ddp")


@pytest.mark.parametrize("hold_after", [2 * STEPS_PER_EPOCH - 1, STEPS_PER_EPOCH])
@pytest.mark.parametrize("name", EXAMPLES)
def test_kills_within_an_epoch_and_between_two_change_no_bit(
    name: str, hold_after: int, fork_server: ForkServer, tmp_path: Path
) -> None:
    """At the end of an epoch the scripts advance their scheduler and evaluate: this happens once on every worker."""
    argv = [str(FOLDER / f"{name}.py")]
    environment = {"EXAMPLE_FOLDER": str(tmp_path), "EXAMPLE_HOLD_AFTER": str(hold_after)}
    alone = tmp_path / "alone"
    pid = fork_server.fork(argv, environment | {"TORCHYARD_ELASTIC_COORDINATOR": "", "ZOO_HOLD": ""}, alone)
    assert fork_server.wait(pid) == 0, alone.read_text()
    job = SmallJob(fork_server, argv, tmp_path, workers=2, environment=environment)
    job.wait_for_world(2, step=hold_after)
    job.kill(job.server.coordinator.membership.world[0])
    replacement = job.add_worker()
    job.wait_for_world(2, step=hold_after, member=replacement)
    job.scale(3)
    job.add_worker()
    job.wait_for_world(3, step=hold_after)
    job.kill(job.server.coordinator.membership.world[-1])
    output = job.finish()
    assert digest_of(output) == digest_of(alone.read_text())
    assert set(count_applied_records(tmp_path).values()) == {1}
