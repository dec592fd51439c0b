"""Exceptions of user code in a process without logging set-up."""

import re

import pytest

from tests.integration.harness.processes import Processes

RAISING = (
    "listener_queue",
    "listener_key",
    "listener_none",
    "hook_before",
    "hook_after",
    "hook_filter",
    "send_callback",
    "transaction_listener",
    "queue_listener",
    "strategy",
)


@pytest.mark.long
async def test_what_user_code_raises_is_printed_with_its_traceback(processes: Processes) -> None:
    """Listeners of all orderings, hooks, callbacks and strategies: stderr has file, line and text although no logger is
    configured, and no other event of the client."""
    broker = await processes.broker("--topic", "orders:1")
    program = processes.program("raising", "tests/integration/harness/raising_program.py", broker.name_server)
    ran = await program.said(re.compile(r"done (.*)\n"), 30)
    assert await program.ended() == 0
    assert set(RAISING) <= set(ran[1].split())
    said = program.stderr()
    for name in RAISING:
        frame = rf'File "{name}.py", line 3, in {name}\n(?:.*\n)?RuntimeError: raised by {name}\n'
        assert re.search(frame, said), f"{name}: {said[-3000:]}"
    events = {line for line in said.splitlines() if line and not line.startswith((" ", "Traceback", "RuntimeError"))}
    assert events
    assert all("failed" in event for event in events), events
