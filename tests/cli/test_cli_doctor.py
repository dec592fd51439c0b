"""`lockstep doctor` at a live broker: a healthy group, then troubles that it must see."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lockstep.client.diagnosis.rules import RULES
from tests.commands import Lockstep, running_broker


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker."""
    with running_broker("--topic", "orders:2", "--topic", "single:1") as command:
        yield command


def rules(lockstep: Lockstep, group: str) -> tuple[int, set[str]]:
    result = lockstep("doctor", "-g", group, "-o", "json")
    return result.status, {row["rule"] for row in result.rows}


def send(lockstep: Lockstep, topic: str, count: int = 20) -> None:
    lines = "".join(f'{{"order": {number % 5}}}\n' for number in range(count))
    assert lockstep("produce", topic, "--key-field", "order", stdin=lines).status == 0


def test_a_healthy_group_and_one_with_too_many_members(lockstep: Lockstep) -> None:
    """Nothing is found while two members share two queues; a third member is a warning, with its cure."""
    send(lockstep, "orders")
    consume = ("consume", "orders", "-g", "shop", "--from", "first")
    with lockstep.start(*consume) as first, ExitStack() as others:
        first.line()
        others.enter_context(lockstep.start(*consume))
        while (healthy := lockstep("doctor", "-g", "shop")).status:  # a queue on its way to the second has no owner
            pass
        assert healthy.err == ""
        assert healthy.out.startswith("nothing found: ")
        others.enter_context(lockstep.start(*consume))
        while (told := lockstep("doctor", "-g", "shop")).status != 3:
            pass
    assert "warning  group shop: more-members-than-queues" in told.out
    assert "3 members, and orders has 2 queues" in told.out
    assert told.err == "lockstep: 0 things will break order, 1 warning\n"


def test_two_processes_with_one_client_id(lockstep: Lockstep) -> None:
    """The broker lists both connections under one id, and both send heartbeats; the doctor names the addresses."""
    send(lockstep, "single")
    consume = ("consume", "single", "-g", "twins", "-D", "instanceName=same", "-D", "heartbeatBrokerInterval=500")
    with lockstep.start(*consume), lockstep.start(*consume):
        while "same-client-id" not in rules(lockstep, "twins")[1]:
            pass
        told = lockstep("doctor", "-g", "twins")
    assert told.status == 4
    assert "BREAKS ORDER  group twins: same-client-id" in told.out
    assert "@same is connected from 127.0.0.1:" in told.out


def test_a_wrong_group_name_and_no_cluster(lockstep: Lockstep) -> None:
    """One line each: what is not allowed, and what did not answer."""
    assert lockstep("doctor", "-g", "a b").status == 2
    away = Lockstep("127.0.0.1:1")("doctor")
    assert away.status == 1
    assert "Traceback" not in away.err
    unknown = lockstep("doctor", "-g", "nobody", "-o", "json")
    assert json.loads(unknown.out) == []
    assert unknown.err == "lockstep: group nobody has no members and no offsets, so there was little to look at\n"
    assert lockstep("doctor", "-g", "nobody").out == f"nothing found: {len(RULES)} rules, 0 groups\n"
