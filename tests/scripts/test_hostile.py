"""The probe that runs beside attacks: it measures a broker's answers, its stalls and its memory, and ends by itself."""

import asyncio
import contextlib
import os
import signal

import pytest

from lockstep.protocol.codes import RequestCode
from lockstep.testing.peer import json_request
from scripts.hostile import __main__ as hostile
from scripts.hostile.run import Attack, run_attack
from scripts.hostile.target import Target

STALL_MS = 3000.0  # on a busy machine the probe may ask long after the broker was stopped
CPU_MS_MAX = 150.0


async def test_an_attack_is_measured() -> None:
    """One request against a broker of its own: its answer in words, the probe's median, and memory that was used."""

    async def one_request(target: Target) -> str:
        return await target.ask(json_request(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": 0}))

    found = await run_attack(Attack("one", 0, "one request", one_request))
    assert (found.outcome, found.failure, found.raw_control_lines) == ("code 0", "", 0)
    assert 0 < found.p50_ms <= found.worst_ms
    assert 0 < found.idle_mib <= found.peak_mib


@pytest.mark.long
async def test_a_broker_that_stands_still_is_seen_as_a_stall() -> None:
    """The broker is stopped for a while: the probe's worst answer takes that long, and none of it is CPU time."""

    async def stop(target: Target) -> str:
        os.kill(target.pid, signal.SIGSTOP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALL_MS / 1000):
                await target.ask(json_request(RequestCode.GET_MAX_OFFSET, {}))
        os.kill(target.pid, signal.SIGCONT)
        return "went on"

    found = await run_attack(Attack("stop", 0, "SIGSTOP", stop))
    assert found.outcome == "went on"
    assert found.worst_ms > STALL_MS / 2
    assert found.worst_cpu_ms < CPU_MS_MAX


@pytest.mark.long
async def test_an_attack_that_does_not_end_is_ended() -> None:
    """An attack waits for an answer that never comes: after its seconds the run goes on and says so."""

    async def wait(target: Target) -> str:
        peer = await target.connect()
        return str(await peer.read())

    found = await run_attack(Attack("wait", 0, "nothing", wait, seconds=0.2))
    assert found.outcome == "not done in 0.2 s"


def test_attacks_have_names_of_their_own() -> None:
    """Rows are found by name, and the points of the list stand in order."""
    names = [attack.name for attack in hostile.ATTACKS]
    assert len(set(names)) == len(names)
    assert [attack.point for attack in hostile.ATTACKS] == sorted(attack.point for attack in hostile.ATTACKS)
