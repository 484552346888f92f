"""`yard logs -f` from the last lines on, and the logs of jobs that have no pods."""

from __future__ import annotations

import subprocess

from tests.cli.test_jobs import BATCH, ENDLESS, TRAINING, batch_job, call, state_of
from tests.cli.test_run import job
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment


def test_follow_begins_with_the_last_lines(plane: Yard) -> None:
    script = f"for i in 1 2 3 4 5; do echo line $i; done; {ENDLESS}"
    assert plane.server().admin.post(BATCH, batch_job("tailed", script)).status == 201
    eventually(lambda: "line 5" in call(plane, "logs", "tailed", "-q")[1], "the lines")
    follow = ("logs", "tailed", "-q", "-f", "--until", "line 5")
    assert call(plane, *follow, "--tail", "2") == (0, "line 4\nline 5\n")
    assert call(plane, *follow, "--since", "2h") == (0, "".join(f"line {number}\n" for number in range(1, 6)))
    assert "leave out -f" in call(plane, *follow, "--previous")[1]
    call(plane, "delete", "tailed")


def test_a_replica_that_starts_while_a_tail_is_followed_is_shown_whole(plane: Yard) -> None:
    script = "echo 1; echo 2; [ $JOB_COMPLETION_INDEX = 1 ] || until [ -e /tmp/go ]; do sleep 0.05; done"
    indexed = batch_job("later-index", script)
    indexed["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 1}
    assert plane.server().admin.post(BATCH, indexed).status == 201
    eventually(lambda: call(plane, "logs", "later-index", "-q")[1] == "1\n2\n", "the lines of the first replica")
    command = [*_command(), "logs", "later-index", "-q", "-f", "--tail", "1", "--kubeconfig", str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "2\n"
        code = call(plane, "exec", "later-index", "--rank", "0", "--", "touch", "/tmp/go")[0]
        assert code in {0, 137}  # the file ends the container, which may end the command before it has returned
        assert following.communicate(timeout=240)[0] == "1\n2\n"
    assert following.returncode == 0


def test_a_stopped_job_shows_the_last_logs_of_its_pods(plane: Yard) -> None:
    assert plane.server().admin.post(TRAINING, job("paused", f"echo rank $RANK is up; {ENDLESS}")).status == 201
    eventually(lambda: call(plane, "logs", "paused")[1].count("is up") == 3, "the line of every replica")
    assert call(plane, "stop", "paused")[0] == 0
    eventually(lambda: "has no pods: the last logs" in call(plane, "logs", "paused")[1], "the pods to be gone")
    output = call(plane, "logs", "paused")[1]
    assert [line for line in output.splitlines() if line.startswith("[")] == [
        "[master-0] rank 0 is up",
        "[worker-0] rank 1 is up",
        "[worker-1] rank 2 is up",
    ]
    assert call(plane, "logs", "paused", "--rank", "2")[1].endswith("\n[worker-1] rank 2 is up\n")
    assert "only the last log" in call(plane, "logs", "paused", "--previous")[1]
    call(plane, "delete", "paused")


def test_follow_shows_a_deleted_job_and_ends(plane: Yard) -> None:
    assert plane.server().admin.post(BATCH, batch_job("past", "echo one; echo two")).status == 201
    eventually(lambda: state_of(plane, "past") == "Complete", "the job to end")
    assert call(plane, "delete", "past")[0] == 0
    eventually(lambda: state_of(plane, "past") == "", "the job to be gone")
    eventually(lambda: call(plane, "logs", "past", "-q", "-f") == (0, "one\ntwo\n"), "the logs of the history")
    assert call(plane, "logs", "past", "-q", "-f", "--until", "one") == (0, "one\n")
    code, output = call(plane, "logs", "past", "-q", "-f", "--until", "three")
    assert code == 1
    assert "code: NoMatch" in output
