"""`yard mcp`: the protocol line by line, and the tools through the reference client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.clients.test_libraries import PROGRAMS, interpreter
from tests.support.yard import Yard, _command, _environment

from torchyard.api.errors import YardError
from torchyard.cli.main import build_app
from torchyard.cli.mcp.process import MAX_CHARACTERS, run_command, run_process, tool_result
from torchyard.cli.mcp.server import PROTOCOL_VERSIONS, Server
from torchyard.cli.mcp.tools import READ_TOOLS, WRITE_TOOLS
from torchyard.cli.output import Output, show_records

TOOLS = {tool.name: tool for tool in (*READ_TOOLS, *WRITE_TOOLS)}
SAMPLES: dict[str, Any] = {"string": "a", "array": ["a"], "object": {"a": "b"}}
READING_VERBS = {"ps", "why", "logs", "events", "top", "history", "compare", "sweep", "run"}


async def exchange(*messages: Any, call: Any = None, limit: int = 1 << 20) -> list[dict[str, Any]]:
    """What a server of the reading tools answers until its input ends."""
    answers: list[dict[str, Any]] = []
    reader = asyncio.StreamReader(limit=limit)
    for message in messages:
        reader.feed_data((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")

    async def echo(words: list[str], seconds: float) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": " ".join(words)}], "isError": False}

    server = Server(READ_TOOLS, ["--context=c"], call or echo, lambda line: answers.append(json.loads(line)))
    serving = asyncio.ensure_future(server.serve(reader))
    expected = sum(isinstance(message, bytes) or "id" in message for message in messages)
    async with asyncio.timeout(30):
        while len(answers) < expected:
            await asyncio.sleep(0)
    reader.feed_eof()
    await serving
    return answers


def request(method: str, identifier: Any = 1, **parameters: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": parameters}


async def test_the_handshake_agrees_on_a_version() -> None:
    for requested, agreed in (
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", PROTOCOL_VERSIONS[0]),  # its batches are not supported
        ("1999-01-01", PROTOCOL_VERSIONS[0]),
    ):
        (answer,) = await exchange(request("initialize", protocolVersion=requested, capabilities={}))
        assert answer["result"]["protocolVersion"] == agreed
        assert answer["result"]["capabilities"] == {"tools": {"listChanged": False}}


async def test_messages_that_are_no_requests_get_the_errors_of_json_rpc() -> None:
    parse, batch, version, unknown, parameters = await exchange(
        b"{", b"[]", b'{"id": 1, "method": "ping"}', request("resources/list"), {**request("ping", 2), "params": [1]}
    )
    assert [answer["error"]["code"] for answer in (parse, batch, version, unknown, parameters)] == [
        -32700, -32600, -32600, -32601, -32602
    ]  # fmt: skip
    assert parse["id"] is None and unknown["id"] == 1
    first, second = await exchange(request("ping"), request("ping"))
    assert first["error"]["code"] == -32600 and "still running" in first["error"]["message"] and "result" in second
    answers = await exchange({"jsonrpc": "2.0", "method": "notifications/initialized"}, request("ping", "a"))
    assert answers == [{"jsonrpc": "2.0", "id": "a", "result": {}}]


async def test_no_message_ends_the_server() -> None:
    nested = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    long = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "' + b"x" * 300_000 + b'"}}'
    answers = await exchange(
        nested,
        long,
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        request("ping", 2),
        limit=250_000,
    )
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, None]
    assert "nested" in answers[0]["error"]["message"] and "longer than" in answers[1]["error"]["message"]
    assert answers[2] == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_every_request_gets_an_answer() -> None:
    async def broken(words: list[str], seconds: float) -> dict[str, Any]:
        raise ValueError("embedded null byte")

    async def endless(words: list[str], seconds: float) -> dict[str, Any]:
        return {"value": float("nan")}

    for call in (broken, endless):
        (answer,) = await exchange(request("tools/call", name="list_jobs"), call=call)
        assert answer["id"] == 1 and answer["error"]["code"] == -32603
    for text in ("a\0b", "\ud800"):
        (answer,) = await exchange(request("tools/call", name="explain_job", arguments={"job": text}))
        assert answer["result"]["isError"] and "job: it has a NUL" in answer["result"]["content"][0]["text"]


async def test_a_tool_is_called_with_the_command_line_of_its_arguments() -> None:
    arguments = {"job": "mnist", "rank": "0", "tail": 5, "previous": True, "grep": "-x y"}
    (answer,) = await exchange(request("tools/call", name="job_logs", arguments=arguments))
    assert (
        answer["result"]["content"][0]["text"] == "logs --context=c --rank=0 --tail=5 --grep=-x y --previous -- mnist"
    )
    (answer,) = await exchange(request("tools/call", name="delete_job", arguments={"job": "mnist"}))
    assert answer["error"]["code"] == -32602 and "no tool delete_job" in answer["error"]["message"]
    for wrong, text in (
        ({"job": "--all"}, "is not a name"),
        ({"job": "a", "tial": 1}, "did you mean tail?"),
        ({"job": "a", "tail": "1"}, "tail: it must be of type integer"),
        ({"job": "a", "tail": False}, "tail: it must be of type integer"),
        ({"job": "a", "previous": 1}, "previous: it must be of type boolean"),
        ({}, "needs the argument job"),
    ):
        (answer,) = await exchange(request("tools/call", name="job_logs", arguments=wrong))
        assert answer["result"]["isError"] and text in answer["result"]["content"][0]["text"]


async def test_a_cancelled_request_ends_its_command() -> None:
    cancelled = asyncio.Event()

    async def hang(words: list[str], seconds: float) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    reader = asyncio.StreamReader()
    server = Server(READ_TOOLS, [], hang, lambda _: None)
    serving = asyncio.ensure_future(server.serve(reader))
    for message in (
        request("tools/call", 7, name="list_jobs"),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
    ):
        reader.feed_data(json.dumps(message).encode() + b"\n")
        await asyncio.sleep(0.01)  # let the server read one message after the other
    async with asyncio.timeout(30):
        await cancelled.wait()
    reader.feed_eof()
    await serving


def test_every_tool_uses_options_that_its_command_has() -> None:
    from typer.main import get_command

    commands = get_command(build_app()).commands  # type: ignore[attr-defined]
    for tool in TOOLS.values():
        needed = {name: SAMPLES[parameter.type] for name, parameter in tool.parameters.items() if parameter.required}
        verb, *words = tool.command_line(needed, [])
        known = {
            option for parameter in commands[verb].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {parameter.option for parameter in tool.parameters.values() if parameter.option}
        used |= {word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]}
        assert {option.replace("-ojson", "-o") for option in used} <= known, tool.name
        if not tool.writes:
            assert verb in READING_VERBS and (verb != "run" or {"--dry-run", "--no-deps"} <= set(words))
            assert verb != "sweep" or "--grid" not in used


def test_tools_that_write_are_marked() -> None:
    for tool in TOOLS.values():
        hints = tool.definition()["annotations"]
        assert hints["readOnlyHint"] is not (tool in WRITE_TOOLS)
    assert TOOLS["delete_job"].definition()["annotations"]["destructiveHint"] is True
    with pytest.raises(YardError, match="of type integer"):
        TOOLS["run_job"].command_line({"target": "a.py", "nodes": True}, [])
    words = TOOLS["rerun_job"].command_line({"job": "a", "set": {"lr": "1"}, "args": ["--x"]}, ["-nb"])
    assert words == ["rerun", "--detach", "-ojson", "-nb", "--set=lr=1", "--", "a", "--x"]


def test_values_of_arrays_and_objects_are_checked() -> None:
    needed = {"target": "a.py", "grid": {"lr": [0.1, "1e-3"], "seed": "1,2"}}
    words = TOOLS["start_sweep"].command_line({**needed, "env": {"A": 1}, "args": ["--x", 2.5]}, [])
    assert {"--grid=lr=0.1,1e-3", "--grid=seed=1,2", "--env=A=1"} <= set(words) and words[-2:] == ["--x", "2.5"]
    for wrong, text in (
        ({"grid": {"lr": None}}, "grid.lr: it must be of type string or number"),
        ({"grid": {"lr": [[1]]}}, r"grid.lr\[0\]: it must be of type string or number"),
        ({"grid": {"lr": []}}, "grid.lr: it has no values"),
        ({"grid": {"lr": ["a,b"]}}, "grid.lr: 'a,b' has a comma"),
        ({"env": {"A": None}}, "env.A: it must be of type string or number"),
        ({"env": {"A": ["b"]}}, "env.A: it must be of type string or number"),
        ({"env": {"A=B": "c"}}, "env: 'A=B' is not a name"),
        ({"args": [{"x": 1}]}, r"args\[0\]: it must be of type string or number"),
        ({"args": [True]}, r"args\[0\]: it must be of type string or number"),
        ({"args": [float("nan")]}, r"args\[0\]: it must be a finite number"),
    ):
        with pytest.raises(YardError, match=text):
            TOOLS["start_sweep"].command_line({**needed, **wrong}, [])
    properties = TOOLS["start_sweep"].definition()["inputSchema"]["properties"]
    assert properties["args"]["items"] == {"type": ["string", "number"]}
    assert properties["grid"]["additionalProperties"]["anyOf"][1]["type"] == "array"


async def test_the_result_of_a_command() -> None:
    assert tool_result("[1]", "", 0)["structuredContent"] == {"result": [1]}
    for text in ("NaN", '{"loss": Infinity}', "1e999", "[" * 30_000):
        assert "structuredContent" not in tool_result(text, "", 0)
    long = tool_result(json.dumps(["x" * MAX_CHARACTERS]), "", 1)
    assert long["isError"] and "structuredContent" not in long
    assert long["content"][0]["text"].startswith("(the start is left out")
    slow = await run_command(["up", "--help"], 0.001)
    assert slow["isError"] and "exit code 124" in slow["content"][0]["text"]


async def test_the_output_of_a_process_is_bounded_and_what_a_late_one_printed_is_kept() -> None:
    program = "import sys\nfor _ in range(2000): sys.stdout.write('é' * 1000)\nprint('last', flush=True)\n"
    text = (await run_process([sys.executable, "-c", program], 60.0))["content"][0]["text"]
    assert text.endswith("last") and "left out" in text and len(text) < MAX_CHARACTERS + 100
    late = await run_process(["sh", "-c", "echo started; exec sleep 600"], 3.0)
    text = late["content"][0]["text"]
    assert late["isError"] and text.startswith("started") and "took longer than 3 s" in text and "124" in text


async def test_a_cancelled_process_ends(tmp_path: Path) -> None:
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    program = (
        "import pathlib, sys, time\ntry:\n    pathlib.Path(sys.argv[1]).touch()\n    time.sleep(600)\n"
        "finally:\n    pathlib.Path(sys.argv[2]).touch()\n"
    )
    running = asyncio.create_task(run_process([sys.executable, "-c", program, str(started), str(stopped)], 60.0))
    async with asyncio.timeout(30):
        while not started.exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert stopped.exists()


def test_records_with_nan_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"name": "a", "metrics": {"loss": float("nan"), "best": float("-inf"), "lr": 0.5}, "rows": (float("inf"),)}
    show_records([record], Output.json, columns={}, empty="")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (read,) = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert read == {"name": "a", "metrics": {"loss": "nan", "best": "-inf", "lr": 0.5}, "rows": ["inf"]}


@pytest.mark.clients
def test_the_reference_client_lists_calls_and_is_refused(plane: Yard, tmp_path: Path) -> None:
    python = interpreter("mcp")
    (tmp_path / "train.py").write_text('print("step 1/1 loss=0.5")\n')
    server = [*_command(), "mcp", "--kubeconfig", str(plane.kubeconfig)]
    calls = [
        ["run_job", {"target": "train.py", "name": "by-agent"}],
        ["smoke_test", {"target": "train.py"}],
        ["list_jobs", {}],
        ["explain_job", {"job": "by-agemt"}],
        ["check_run", {"target": "train.py", "nodes": 2, "name": "planned"}],
        ["delete_job", {"job": "by-agent"}],
    ]

    def run(command: list[str], calls: list[Any]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [python, PROGRAMS / "with_mcp.py", json.dumps(command), json.dumps(calls)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={"PATH": "/usr/bin:/bin", **_environment()},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    greeting, listed, started, smoke, jobs, missing, checked, deleted = run([*server, "--allow-write"], calls)
    assert greeting["serverInfo"]["name"] == "torchyard"
    assert {tool["name"] for tool in listed["tools"]} == set(TOOLS)
    assert started["structuredContent"]["result"][0]["name"] == "pytorchjob.kubeflow.org/by-agent"
    assert not smoke["isError"] and "smoke test passed" in smoke["content"][0]["text"]
    assert "by-agent" in [job["name"] for job in jobs["structuredContent"]["result"]]
    assert missing["isError"] and "did you mean by-agent?" in missing["content"][0]["text"]
    assert [entry["name"] for entry in checked["structuredContent"]["result"]][-1].endswith("/planned")
    assert deleted["structuredContent"]["result"][0]["action"] == "deleted"
    _, listed = run(server, [])
    assert {tool["name"] for tool in listed["tools"]} == {tool.name for tool in READ_TOOLS}
