"""`lockstep doctor` at a live broker: a healthy group, then troubles that it must see."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lockstep.cli.output import CliError, OutputFormat
from lockstep.cli.what_if import Live, bounded, sentence_of, tell, ways_of
from lockstep.client.diagnosis.rules import RULES
from lockstep.simulation.lab.setup import LockMode
from lockstep.simulation.search.compare import Comparison, Trial
from lockstep.simulation.search.ways import Base, Way
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


def members(lockstep: Lockstep) -> dict[str, int]:
    return {row["group"]: row["members"] for row in lockstep("group", "list", "-o", "json").rows}


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


def test_what_a_deploy_would_cost(lockstep: Lockstep) -> None:
    """Members, queues, settings and the rate are those of the live group; without members there is nothing to play."""
    consume = ("consume", "orders", "-g", "deployed", "-D", "rocketmq.client.rebalance.lockInterval=5000")
    what_if = ("doctor", "--what-if", "deploy", "--with", "ready=1s", "--seeds", "1")
    with lockstep.start(*consume), lockstep.start(*consume):
        while len(lockstep("lock", "list", "-g", "deployed", "-o", "json").rows) < 2:
            pass
        while members(lockstep).get("deployed") != 2:
            pass
        told = lockstep(*what_if, "-g", "deployed", "-o", "json")
        with lockstep.start(*what_if[:-1], "1000", "-g", "deployed") as long:
            while not long.error_line().endswith(" runs\n"):
                pass
            assert long.stop(signal.SIGINT).status == 130
    assert told.status == 0, told.err
    row = json.loads(told.out)
    assert {name: row["setup"][name] for name in ("consumers", "queues", "brokers")} == {
        "consumers": 2, "queues": 2, "brokers": 1
    }  # fmt: skip
    assert "rocketmq.client.rebalance.lockInterval=5000" in row["consumer"]
    assert [way["with"]["lock_mode"] for way in row["ways"]] == ["faithful", "fenced"]
    assert row["sentence"].startswith("Your next deploy of 2 members: longest standstill ")
    gone = lockstep(*what_if, "-g", "nobody")
    assert gone.status == 1
    assert "group nobody has no members that are online" in gone.err
    assert lockstep(*what_if).status == lockstep("doctor", "--with", "ready=30s").status == 2
    assert (
        "--with readi: no story has it; did you mean ready?"
        in lockstep(*what_if, "-g", "nobody", "--with", "readi=1s").err
    )
    assert "no experiment is named 'deplo'" in lockstep("doctor", "--what-if", "deplo", "-g", "nobody").err


def test_a_question_may_name_the_locks_and_the_members() -> None:
    """The live group is compared with the lock mode that somebody names, and the sentence has the members that ran."""
    live = Live({"consumers": 2}, (), LockMode.FAITHFUL)
    ways = ways_of(live, ("lock_mode=fifo", "consumers=5"))
    modes = [dict(way.values)["lock_mode"] for way in ways]
    assert modes == ["faithful", "fifo"]
    trials = [Trial(way, 1, {"still_longest_ms": 1000.0 + way}) for way in range(2)]
    assert sentence_of(Comparison(Base("deploy", live.setup), ways, trials)) == (
        "Your next deploy of 5 members: longest standstill 1.0 s (p99 of 1 seed); as a FIFO group 1.0 s."
    )
    same = ways_of(live, ("lock_mode=faithful",))
    assert sentence_of(Comparison(Base("deploy", live.setup), same, trials[:1])) == (
        "Your next deploy of 2 members: longest standstill 1.0 s (p99 of 1 seed)."
    )
    sticky = [dict(way.values)["strategy"] for way in ways_of(live, ("strategy=STICKY",))]
    assert sticky == ["AVG", "STICKY"]  # with faithful locks nobody knows the owners


@pytest.mark.parametrize("settings", [(), ("rate=5000",)])
def test_a_run_has_so_many_messages_at_most(settings: tuple[str, ...]) -> None:
    """A deploy of 50 members takes 450 s; a rate that is asked for stays."""
    setup = {"consumers": 50, "queues": 200, "brokers": 1, "rate": 5000.0, "keys": 800, "work": "20ms"}
    live = Live(setup, (), LockMode.FAITHFUL, ("20 ms a call",))
    told = bounded(live, "deploy", ways_of(live, settings))
    if settings:
        assert told is live
        return
    assert told.setup == {**setup, "rate": 111.11}
    assert told.guessed[1:] == ("111.11 messages a second for 5,000.0, so that a run has no more than 50,000",)
    assert bounded(told, "deploy", ways_of(told, ())) is told


@pytest.mark.parametrize("output", [OutputFormat.TABLE, OutputFormat.JSON])
def test_a_run_that_fails_is_an_error(capfdbinary: pytest.CaptureFixture[bytes], output: OutputFormat) -> None:
    """After what was found: the other runs are worth something."""
    trials = [Trial(0, 1, {"still_longest_ms": 1000.0}), Trial(0, 2, {}, "LimitError: long")]
    comparison = Comparison(Base("deploy", {"consumers": 2}), [Way((("lock_mode", "fenced"),))], trials)
    with pytest.raises(CliError, match="1 of 2 runs did not reach their end"):
        tell(comparison, (), output)
    assert b"LimitError: long" in capfdbinary.readouterr().out
