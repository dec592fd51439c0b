"""`lockstep group`, `offset` and `topic` as a user runs them, against a real broker."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import AdminClient
from tests.cli.cli_inside import Inside
from tests.commands import END_S, Lockstep, running_broker
from tests.forked.process import Forked
from tests.rows import by_row


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own, and topic `orders`: a, b, c in its only queue."""
    with running_broker() as command:
        assert command("topic", "create", "orders", "--queues", "1").status == 0
        assert command("produce", "orders", "-k", "k", "--text", stdin="a\nb\nc\n").status == 0
        yield command


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


def offsets(inside: Inside, group: str) -> list[int]:
    return [row["committed_offset"] for row in inside("offset", "show", group, "-t", "orders", "-o", "json").rows]


def test_a_group_that_died_before_its_first_commit_is_known(lockstep: Lockstep, inside: Inside) -> None:
    """A member that is killed leaves locks and no offset: its queues are shown with their owner until the locks end."""
    with lockstep.start("consume", "orders", "-g", "killed", "-f", "%s\n") as running:
        assert running.line() == "a\n"
        running.popen.kill()
        running.popen.wait(END_S)
    (row,) = [one for one in inside("lock", "list", "-g", "killed", "-o", "json").rows if one["topic"] == "orders"]
    (described,) = inside("group", "describe", "killed", "-o", "json").rows
    (queue,) = [one for one in described["queues"] if one["topic"] == "orders"]
    assert (queue["owner"], queue["max_offset"]) == (row["owner"], 3)
    explained = inside("group", "describe", "killed", "--why")
    assert explained.status == 0
    assert row["owner"] in explained.out
    assert f"{row['owner']} is no member any more and has locks for " in explained.err


# Groups ------------------------------------------------------------------------------------------------------


async def test_a_group_and_a_topic_are_made_for_messages_in_order(lockstep: Lockstep) -> None:
    """As clients of RocketMQ 5 ask for it; a change of one setting leaves the others, also those of the topic."""

    async def settings() -> tuple[object, ...]:
        async with AdminClient(name_server=lockstep.name_server) as admin:
            (config,) = (await admin.group_configs())["made"]
            types = await admin.message_types()
        return config.consume_message_orderly, config.retry_max_times, types

    made = lockstep("topic", "create", "fifo", "--type", "fifo")
    assert made.err == "lockstep: topic fifo has 4 queues on broker-a, for FIFO messages\n"
    assert lockstep("topic", "create", "fifo", "--queues", "4").status == 0
    made = lockstep("group", "create", "made", "--fifo")
    assert (made.status, made.err) == (0, "lockstep: group made is in order, with 16 retries\n")
    assert await settings() == (True, 16, {"fifo": "FIFO"})
    assert lockstep("group", "create", "made").err == (
        "lockstep: group 'made' exists: `lockstep group update` changes it\n"
    )
    assert lockstep("group", "update", "made", "--retries", "3").status == 0
    assert (await settings())[:2] == (True, 3)
    assert (
        lockstep("group", "update", "made", "--no-fifo").err == "lockstep: group made is not in order, with 3 retries\n"
    )
    assert (await settings())[:2] == (None, 3)


def test_a_delivery_that_holds_up_a_queue_is_shown(lockstep: Lockstep, inside: Inside) -> None:
    """Who has it and until when; the doctor finds nothing, but in a group that reads such a topic without order."""
    assert lockstep("topic", "create", "held", "--queues", "1", "--type", "fifo").status == 0
    assert lockstep("produce", "held", "-k", "k", "--text", stdin="a\nb\n").status == 0
    pops = ("consume", "held", "-g", "popped", "--pop", "--from", "first", "--work", "5m")
    with lockstep.start(*pops) as running:
        end = time.monotonic() + END_S
        while not (rows := inside("group", "deliveries", "popped", "-o", "json").rows):
            assert time.monotonic() < end
        row = rows[0]
        assert (row["topic"], row["offset"], row["times_before"]) == ("held", 0, 0)
        assert row["visible_ms"] > row["popped_ms"]
        (described,) = inside("group", "describe", "popped", "-o", "json").rows
        assert described["deliveries"][0]["client"] == row["client"] == described["members"][0]["client_id"]
        assert described["answers"] == {"late": 0, "stale": 0, "revived": 0}
        assert row["client"] in inside("group", "describe", "popped").out.rpartition("TIMES BEFORE")[2]
        found = inside("doctor", "-g", "popped", "-o", "json").rows
        running.popen.kill()
        running.popen.wait(END_S)
    assert found == []
    lockstep("consume", "held", "-g", "plain", "--mode", "concurrent", "--from", "first", "-c", "2")
    (finding,) = inside("doctor", "-g", "plain", "-o", "json").rows
    assert finding["rule"] == "fifo-without-order"
    lockstep("group", "update", "plain", "--fifo")
    assert inside("doctor", "-g", "plain", "-o", "json").rows == []


def test_a_group_is_described_with_owner_offsets_and_lag(lockstep: Lockstep, inside: Inside) -> None:
    """While it runs the owner is the lock's, and its member tells how it consumes; the lag is what is not handled."""
    lockstep("consume", "orders", "-g", "described", "-c", "2")
    (offline,) = inside("group", "describe", "described", "-o", "json").rows
    assert (offline["group"], offline["members"], offline["statistics"]) == ("described", [], [])
    (queue,) = offline["queues"]
    assert queue["owner"] is None
    assert (queue["committed_offset"], queue["max_offset"], queue["lag"]) == (2, 3, 1)
    assert queue["last_timestamp"] > 0
    with lockstep.start("consume", "orders", "-g", "described", "-f", "%s\n") as running:
        assert running.line() == "c\n"
        (online,) = inside("group", "describe", "described", "-t", "orders", "-o", "json").rows
        table = inside("group", "describe", "described").out
        (explained,) = inside("group", "describe", "described", "-t", "orders", "--why", "-o", "json").rows
        with_reasons = inside("group", "describe", "described", "--why").out
        refused = inside("group", "delete", "described", "--yes")
    (member,) = online["members"]
    names = ("language", "version", "consume_type", "message_model", "orderly", "threads")
    assert [member[name] for name in names] == ["PYTHON", "V4_9_8", "CONSUME_PASSIVELY", "CLUSTERING", True, 1]
    assert [queue["owner"] for queue in online["queues"]] == [member["client_id"]]
    (statistics,) = online["statistics"]
    assert (statistics["client_id"], statistics["topic"]) == (member["client_id"], "orders")
    assert {"pull_rt", "pull_tps", "consume_rt", "consume_ok_tps", "consume_failed_tps", "consume_failed_msgs"} < set(
        statistics
    )
    members, queues, rates = table.split("\n\n")
    lag = queues.splitlines()[1].split()[6]
    assert queues.splitlines()[-1].split() == ["total", "-", "-", "-", "-", "-", lag, "-"]
    assert members.split("  ")[0] == "CLIENT ID"
    assert "orderly, clustering" in members
    assert queues.splitlines()[1].split()[:4] == ["orders", "broker-a", "0", member["client_id"]]
    assert rates.splitlines()[1].split()[:2] == [member["client_id"], "orders"]
    (row,) = explained["rebalance"]
    assert (row["queue_id"], row["client_id"], row["did"], row["reckoned"]) == (0, member["client_id"], "locked", False)
    assert (row["why"], row["strategy"], row["share"]) == (
        "the first rebalance of this member",
        "AVG",
        ["broker-a:0"],
    )
    assert "the first rebalance of this member" in with_reasons.split("\n\n")[3]
    assert (refused.status, refused.out) == (1, "")
    assert f"is online with {member['client_id']}: stop its members first" in refused.err


MEMBER = """
import asyncio
from lockstep.client import PushConsumer
from lockstep.client.consumer.broker_requests import BrokerCalls

def no_body(self, endpoint, command):
    return command.reply(0, {reply})

BrokerCalls._running_info = no_body

async def main():
    consumer = PushConsumer("{group}", name_server="{name_server}", listener=lambda messages, context: None)
    consumer.subscribe("orders")
    async with consumer:
        print("started", consumer.client_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            "remark='json marshal error: json: unsupported value: NaN'",
            "json marshal error: json: unsupported value: NaN",
        ),
        ("body=b''", "an answer without a body"),
        ("body=b'[NaN'", "the body is not a ConsumerRunningInfo"),
    ],
    ids=["as Go does", "nothing at all", "half a body"],
)
def test_a_member_without_statistics_does_not_hide_the_others(
    lockstep: Lockstep, inside: Inside, tmp_path: Path, reply: str, said: str
) -> None:
    """It is listed, its remark is on stderr, and the other member, the queues and the status are as always."""
    program = tmp_path / "member.py"
    program.write_text(MEMBER.format(group=tmp_path.name, name_server=lockstep.name_server, reply=reply), "utf-8")
    with lockstep.program(program) as silent:
        _, silent_id = silent.line().split()
        with lockstep.start("consume", "orders", "-g", tmp_path.name):
            deadline_s = time.monotonic() + END_S
            while True:
                described = inside("group", "describe", tmp_path.name, "-o", "json")
                if not described.rows or len(described.rows[0]["members"]) == 2 or time.monotonic() > deadline_s:
                    break
    assert described.status == 0, described.err
    (row,) = described.rows
    assert len(row["members"]) == 2
    assert [member["threads"] for member in row["members"] if member["client_id"] == silent_id] == [None]
    assert [member["threads"] for member in row["members"] if member["client_id"] != silent_id] == [1]
    assert [queue["max_offset"] for queue in row["queues"]] == [3]
    assert described.err.startswith(f"lockstep: no statistics of {silent_id}: ")
    assert said in described.err


STRANGE = """body=__import__('msgpack').packb({{
    'properties': {{'PROP_THREADPOOL_CORE_SIZE': '{threads}', 'PROP_CONSUMER_START_TIMESTAMP': '{started}'}},
    'subscriptionSet': [], 'mqTable': {{}}, 'statusTable': {{}},
}})"""


@pytest.mark.parametrize(
    ("threads", "started", "shown"),
    [
        ("\u00b2", "-1", (None, None)),
        ("9" * 5000, "9" * 5000, (None, None)),
        ("7", "9" * 18, (7, 999_999_999_999_999_999)),
    ],
    ids=["no digits", "very long", "no year has it"],
)
def test_a_member_with_strange_numbers_does_not_hide_the_others(
    lockstep: Lockstep, inside: Inside, tmp_path: Path, threads: str, started: str, shown: tuple[int | None, ...]
) -> None:
    """A member writes its numbers as texts: they may be anything, in tables too."""
    program, reply = tmp_path / "member.py", STRANGE.format(threads=threads, started=started)
    program.write_text(MEMBER.format(group=tmp_path.name, name_server=lockstep.name_server, reply=reply), "utf-8")
    with lockstep.program(program) as strange:
        strange.line()
        described = inside("group", "describe", tmp_path.name, "-o", "json")
        table = inside("group", "describe", tmp_path.name)
    assert (described.status, table.status) == (0, 0), table.err
    (member,) = described.rows[0]["members"]
    assert (member["threads"], member["started"]) == shown
    assert [queue["max_offset"] for queue in described.rows[0]["queues"]] == [3]


def test_the_list_of_groups_tells_which_consume_in_order(lockstep: Lockstep, inside: Inside) -> None:
    """Only a group whose members are all orderly is in order; one that is not online is not known to be."""
    lockstep("consume", "orders", "-g", "offline", "-e")
    with (
        lockstep.start("consume", "orders", "-g", "orderly", "-f", "%s\n") as orderly,
        lockstep.start("consume", "orders", "-g", "mixed", "-f", "%s\n") as first,
        lockstep.start("consume", "orders", "-g", "parallel", "--mode", "concurrent", "-f", "%s\n") as parallel,
    ):
        for running in (orderly, first, parallel):
            running.line()
        with lockstep.start("consume", "orders", "-g", "mixed", "--mode", "concurrent"):
            deadline_s = time.monotonic() + END_S
            while time.monotonic() < deadline_s:
                rows = {row["group"]: row for row in inside("group", "list", "-o", "json").rows}
                if rows["mixed"]["members"] == 2:
                    break
            table = {line.split()[0]: line for line in inside("group", "list").out.splitlines()}
    found = {name: (row["orderly"], row["members"], row["in_order"]) for name, row in rows.items()}
    assert found["orderly"] == (1, 1, True)
    assert found["mixed"] == (1, 2, False)
    assert found["parallel"] == (0, 1, False)
    assert found["offline"] == (0, 0, None)
    assert table["GROUP"].split() == ["GROUP", "MEMBERS", "IN", "ORDER", "TOPICS"]
    assert table["orderly"].split()[1:] == ["1", "yes", "orders"]
    assert table["mixed"].split()[1:] == ["2", "1", "of", "2", "orders"]
    assert table["parallel"].split()[1:] == ["1", "no", "orders"]
    assert table["offline"].split()[1:] == ["0", "-", "orders"]


def test_a_group_is_deleted_with_its_offsets(lockstep: Lockstep, inside: Inside) -> None:
    """It is not listed any more; its retry topic goes when that is said."""
    lockstep("consume", "orders", "-g", "leaving", "-e")
    assert "leaving" in [row["group"] for row in inside("group", "list", "-o", "json").rows]
    deleted = inside("group", "delete", "leaving", "--topics")
    assert (deleted.status, deleted.out) == (0, "")
    assert deleted.err == "lockstep: group leaving is deleted with %RETRY%leaving\n"
    assert "leaving" not in [row["group"] for row in inside("group", "list", "-o", "json").rows]
    assert "%RETRY%leaving" not in inside("topic", "list", "-a").out


def test_a_group_without_a_member_so_far_is_deleted(lockstep: Lockstep, inside: Inside) -> None:
    """It has settings and nothing else. Retries of what a group popped go with its other topics."""
    assert inside("group", "create", "unused").status == 0
    assert inside("group", "delete", "unused").err == "lockstep: group unused is deleted\n"
    assert "there is no group 'unused'" in inside("group", "update", "unused").err
    lockstep("consume", "orders", "-g", "popping", "--mode", "concurrent", "-e")
    assert inside("topic", "create", "%RETRY%popping_orders").status == 0
    deleted = inside("group", "delete", "popping", "--topics").err
    assert deleted == "lockstep: group popping is deleted with %RETRY%popping, %RETRY%popping_orders\n"


# Topics ------------------------------------------------------------------------------------------------------


def test_a_topic_tells_its_offsets_and_times(inside: Inside) -> None:
    """First and last message, as JSON in epoch ms and in a table as dates."""
    (row,) = inside("topic", "stats", "orders", "-o", "json").rows
    assert (row["min_offset"], row["max_offset"], row["messages"]) == (0, 3, 3)
    assert 0 < row["earliest_timestamp"] <= row["last_timestamp"]
    header, line = inside("topic", "stats", "orders").out.splitlines()
    assert header.split() == ["BROKER", "QUEUE", "ID", "MIN", "OFFSET", "MAX", "OFFSET", "MESSAGES", "EARLIEST", "LAST"]
    assert line.split()[:5] == ["broker-a", "0", "0", "3", "3"]


def test_a_topic_is_described(lockstep: Lockstep, inside: Inside) -> None:
    """Each broker's queues, type and messages, and who consumes it; a type only where one was given."""
    inside("topic", "create", "told", "--queues", "2", "--type", "fifo")
    inside("topic", "create", "plain", "--queues", "1")
    lockstep("produce", "told", "-k", "k", "--text", stdin="a\nb\nc\n")
    lockstep("consume", "told", "-g", "reader", "--from", "first", "-e")
    (told,) = inside("topic", "describe", "told", "-o", "json").rows
    assert (told["topic"], told["messages"]) == ("told", 3)
    assert 0 < told["earliest_timestamp"] <= told["last_timestamp"]
    (row,) = told["brokers"]
    assert (row["broker"], row["type"], row["messages"]) == ("broker-a", "FIFO", 3)
    assert (row["read_queues"], row["write_queues"], row["permissions"]) == (2, 2, ["write", "read"])
    assert row["attributes"] == {"message.type": "FIFO"}
    assert told["bytes"] == row["bytes"] > 3 * 91, "a record of one byte has 91 and its properties"
    assert told["bytes"] % 3 == 0, "three records of one size"
    assert told["groups"] == [{"group": "reader", "members": 0, "lag": 0}]
    table = [line.split() for line in inside("topic", "describe", "told").out.splitlines()]
    assert [cells[:1] for cells in table] == [["BROKER"], ["broker-a"], ["total"], [], ["GROUP"], ["reader"]]
    plain = inside("topic", "describe", "plain")
    assert plain.out.splitlines()[1].split() == ["broker-a", "-", "1", "1", "write,", "read", "0", "0", "-", "-", "-"]
    assert plain.err == "lockstep: no group consumes topic plain\n"


def test_a_topic_is_deleted_with_its_messages_and_offsets(lockstep: Lockstep, inside: Inside) -> None:
    """Not while a group that is online consumes it; of a new topic of its name the group reads everything."""
    inside("topic", "create", "going", "--queues", "1")
    lockstep("produce", "going", "-k", "k", "--text", stdin="a\nb\n")
    with lockstep.start("consume", "going", "-g", "reads", "--from", "first", "-f", "%s\n") as running:
        assert [running.line(), running.line()] == ["a\n", "b\n"]
        refused = inside("topic", "delete", "going", "--yes")
        assert (refused.status, refused.out) == (1, "")
        assert "group 'reads' consumes topic 'going' with " in refused.err
        assert refused.err.endswith(": stop its members first\n")
        running.stop(signal.SIGINT)
    deleted = inside("topic", "delete", "going")
    assert (deleted.status, deleted.out) == (0, "")
    assert deleted.err == "lockstep: topic going is deleted with 2 messages and the offsets of reads\n"
    assert "going" not in inside("topic", "list").out
    inside("topic", "create", "going", "--queues", "1")
    lockstep("produce", "going", "-k", "k", "--text", stdin="c\n")
    assert lockstep("consume", "going", "-g", "reads", "--from", "first", "-e", "-f", "%s").out == "c"


# Offsets -----------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_that_is_offline_are_stored(lockstep: Lockstep, inside: Inside) -> None:
    """A dry run changes nothing; backwards goes, forwards only with --force; a seek is exact."""
    lockstep("consume", "orders", "-g", "reset", "-e")
    dry = inside("offset", "reset", "reset", "-t", "orders", "--to-time", "earliest", "--dry-run", "-o", "json")
    assert [(row["before"], row["after"], row["moved_by"]) for row in dry.rows] == [(3, 0, -3)]
    assert offsets(inside, "reset") == [3]
    back = inside("offset", "reset", "reset", "-t", "orders", "--to-time", "1h ago", "-o", "json")
    assert [(row["before"], row["after"]) for row in back.rows] == [(3, 0)]
    stayed = inside("offset", "reset", "reset", "-t", "orders", "--to-offset", "2", "-q", "broker-a:0")
    assert "no queue moves; forward, over what was not consumed, takes --force" in stayed.err
    assert offsets(inside, "reset") == [0]
    forced = inside("offset", "reset", "reset", "-t", "orders", "--to-time", "latest", "--force")
    assert forced.out.splitlines()[1].split() == ["orders", "broker-a", "0", "0", "3", "3"]
    assert inside("offset", "seek", "reset", "-t", "orders", "-q", "0", "--offset", "1").status == 0
    assert offsets(inside, "reset") == [1]
    assert lockstep("consume", "orders", "-g", "reset", "-e", "-f", "%s").out == "bc"


def test_lag_is_not_below_0_while_the_group_goes_on(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it commits after its offset was read does not count; the ends of the queues are read later."""
    inside("offset", "seek", "busy", "-t", "orders", "-q", "0", "--offset", "1", "--force")
    look = AdminClient.topic_stats

    async def look_while_the_group_goes_on(admin: AdminClient, topic: str) -> Any:
        stats = await look(admin, topic)
        for queue, row in stats.items():
            await admin.update_consumer_offset("busy", queue, row[1] + 2)
        return stats

    monkeypatch.setattr(AdminClient, "topic_stats", look_while_the_group_goes_on)
    shown = inside("offset", "show", "busy", "-t", "orders", "-o", "json")
    assert [(row["committed_offset"], row["lag"]) for row in shown.rows] == [(1, 2)]


def test_members_that_are_online_are_told(lockstep: Lockstep, inside: Inside) -> None:
    """They consume again from there on; what they are never told is refused, and so is a seek."""
    with lockstep.start("consume", "orders", "-g", "told", "-f", "%s\n") as running:
        assert [running.line() for _ in range(3)] == ["a\n", "b\n", "c\n"]
        for call in ("reset told -t orders --to-offset 0", "seek told -t orders -q 0 --offset 0"):
            refused = inside("offset", *call.split())
            assert (refused.status, refused.out) == (1, "")
            assert "group 'told' is online" in refused.err
        told = inside("offset", "reset", "told", "-t", "orders", "--to-time", "earliest")
        assert (
            told.err
            == "lockstep: the brokers notified the members, which begin there when their listeners have returned\n"
        )
        assert [running.line() for _ in range(3)] == ["a\n", "b\n", "c\n"]
        assert running.stop(signal.SIGINT).status == 130
    assert offsets(inside, "told") == [3]


# Wrong calls -------------------------------------------------------------------------------------------------


@by_row(
    "arguments, status, complaint",
    [
        ("group delete nosuch", 1, "no broker knows group 'nosuch'; known are"),
        ("topic stats nosuch", 1, "topic 'nosuch' does not exist"),
        ("topic describe nosuch", 1, "topic 'nosuch' does not exist"),
        ("topic delete nosuch", 1, "topic 'nosuch' does not exist"),
        ("topic delete TBW102", 1, "topic 'TBW102' is the broker's own"),
        ("offset show nosuch", 1, "no broker knows group 'nosuch'; known are"),
        ("offset reset g -t orders", 2, "give either --to-time or --to-offset"),
        ("offset reset nosuch -t orders --to-time now", 1, "has no offsets of topic 'orders'; its groups are"),
        ("offset seek g -t orders -q 5 --offset 0", 1, "has no queue 5; it has broker-a:0 to broker-a:0"),
        ("offset seek g -t orders -q 0 --offset 9 --force", 1, "has offsets 0 to 3, and not 9"),
        ("offset seek g/g -t orders -q 0 --offset 9", 2, "may hold only the characters"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(inside: Inside, arguments: str, status: int, complaint: str) -> None:
    """Nothing on stdout, no traceback."""
    result = inside(*arguments.split())
    assert (result.status, result.out) == (status, "")
    assert complaint in result.err
    assert result.err.startswith("lockstep: ")
    assert result.err.count("\n") == 1


# On a terminal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "said", "left"),
    [("n\n", 1, "nothing is changed", 3), ("\n", 1, "nothing is changed", 3), ("y\n", 0, "", 0), ("\x03", 130, "", 3)],
    ids=["no", "nothing", "yes", "Ctrl-C"],
)
def test_a_person_is_asked_first(
    lockstep: Lockstep, inside: Inside, answer: str, status: int, said: str, left: int
) -> None:
    """The offsets as they are and as they would be, and a question; only a yes goes on."""
    lockstep("offset", "seek", "asked", "-t", "orders", "-q", "0", "--offset", "3", "--force")
    master, slave = pty.openpty()
    try:
        command = lockstep.command("offset", "reset", "asked", "-t", "orders", "--to-time", "earliest")
        with Forked(
            command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=lockstep.environment, start_new_session=True
        ) as process:
            seen = b""
            while b"[y/N]" not in seen:
                seen += os.read(master, 1024)
            if answer == "\x03":  # the terminal of a session of its own would send it
                process.send_signal(signal.SIGINT)
            else:
                os.write(master, answer.encode())
            out, _ = process.communicate(timeout=END_S)
            seen += os.read(master, 1024) if said else b""
    finally:
        os.close(master)
        os.close(slave)
    assert b"lockstep: change 1 offset of group asked? [y/N]" in seen
    assert (process.returncode, said.encode() in seen) == (status, True)
    assert [line.split() for line in out.splitlines()[1:]] == [[b"orders", b"broker-a", b"0", b"3", b"0", b"-3"]]
    assert offsets(inside, "asked") == [left]
