"""`lockstep` as a user runs it: real commands as processes, against a real broker."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_inside import Inside
from tests.commands import END_S, Lockstep, Result, running_broker, without_progress

ORDERS = "".join([json.dumps({"tail": f"N{n % 3}", "n": n}) + "\n" for n in range(30)])


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own."""
    with running_broker() as command:
        yield command


@pytest.fixture(scope="module")
def orders(lockstep: Lockstep) -> Result:
    """30 lines of three keys in topic `orders`; the results as JSON."""
    assert lockstep("topic", "create", "orders", "--queues", "4").status == 0
    result = lockstep("produce", "orders", "--key-field", "tail", "-o", "json", stdin=ORDERS)
    assert result.status == 0, result.err
    return result


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


def one_line(text: str) -> str:
    """The text, which must be one line of the command's own; a traceback is none. A busy machine sees progress, too."""
    text = without_progress(text)
    assert text.startswith("lockstep: ")
    assert text.count("\n") == 1
    return text


def test_a_started_command_does_what_a_forked_one_does(lockstep: Lockstep, orders: Result) -> None:
    """One real start of Python: all other tests of commands fork them."""
    arguments = ("topic", "stats", "orders", "-o", "json")
    command = lockstep.command(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=lockstep.environment)
    assert (done.returncode, done.stdout, done.stderr) == lockstep(*arguments)


# Produce -----------------------------------------------------------------------------------------------------


def test_produce_answers_each_line_in_order(orders: Result) -> None:
    """One JSON row a line, in line order; each key in one queue, where its offsets follow its lines."""
    assert [row["line"] for row in orders.rows] == list(range(1, 31))
    for key in ("N0", "N1", "N2"):
        rows = [row for row in orders.rows if row["key"] == key]
        assert len(rows) == 10
        assert len({row["queue_id"] for row in rows}) == 1
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(offsets)
    assert "sent 30 messages to " in one_line(orders.err)


def test_a_bad_line_is_named_and_stops(lockstep: Lockstep, orders: Result) -> None:
    """What came before it is sent and counted, what comes after it is not."""
    result = lockstep("produce", "bad-lines", "-k", "a", stdin='{"n": 1}\n{"n": 2}\nnonsense\n{"n": 4}\n')
    assert result.status == 1
    assert "sent 2 messages" in result.err
    assert "lockstep: line 3: is not JSON: Expecting value at character 1" in result.err
    consumed = lockstep("consume", "bad-lines", "-g", "bad-lines", "-e")
    assert [json.loads(row["body"])["n"] for row in consumed.rows] == [1, 2]


def test_bad_lines_may_be_skipped_and_are_counted(lockstep: Lockstep) -> None:
    """Each is named, and the rest is sent."""
    result = lockstep("produce", "skips", "-k", "a", "--skip-bad-lines", stdin='{"n": 1}\n[]\n{"n": 2}\n"x"\n')
    assert result.status == 0
    assert "line 2: is a list" in result.err
    assert "line 4: is a text" in result.err
    assert "sent 2 messages" in result.err
    assert "2 bad lines skipped" in result.err


def test_lines_may_come_from_a_file(lockstep: Lockstep, tmp_path: Path) -> None:
    """--file, read to its end whatever its size."""
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f'{{"n": {n}, "fill": "{"x" * 500}"}}\n' for n in range(2000)), encoding="utf-8")
    result = lockstep("produce", "from-file", "-k", "a", "--file", str(path))
    assert result.status == 0, result.err
    assert "sent 2,000 messages to 1 queue of from-file" in one_line(result.err)
    consumed = lockstep("consume", "from-file", "-g", "from-file", "-e")
    assert "".join(row["body"] + "\n" for row in consumed.rows) == path.read_text(encoding="utf-8")


def test_text_lines_and_envelopes_go_round(lockstep: Lockstep) -> None:
    """Bytes that are no UTF-8 come out as base64, and in again as the same bytes."""
    first = lockstep("produce", "texts", "--text", "-k", "k", "--tags", "raw", stdin=b"plain\n\xff\xfe\n")
    assert first.status == 0, first.err
    consumed = lockstep("consume", "texts", "-g", "texts", "-c", "2")
    assert [row.get("body", row.get("body_base64")) for row in consumed.rows] == ["plain", "//4="]
    assert lockstep("produce", "texts2", "--envelope", stdin=consumed.out).status == 0
    again = lockstep("consume", "texts2", "-g", "texts", "-e", "-f", "%k/%g/%S\n")
    assert again.out == "k/raw/5\nk/raw/2\n"


def test_a_refused_message_is_named_by_its_line(lockstep: Lockstep) -> None:
    """A body over 4 MiB is refused; the exit status says so."""
    result = lockstep("produce", "big", "--text", stdin=b"small\n" + bytes(4 * 1024 * 1024 + 1))
    assert result.status == 1
    assert "line 2: a body must have 1 to 4194304 bytes, not 4194305" in result.err


def test_ctrl_c_ends_produce_with_all_that_was_read_stored(lockstep: Lockstep) -> None:
    """A pipe that stays open and silent does not keep the command from ending."""
    with lockstep.start("produce", "pipe", "-k", "a", "-o", "json") as running:
        assert running.popen.stdin is not None
        running.popen.stdin.write(b'{"n": 1}\n{"n": 2}\n')
        running.popen.stdin.flush()
        assert [json.loads(running.line())["line"], json.loads(running.line())["line"]] == [1, 2]
        running.popen.send_signal(signal.SIGINT)
        assert running.popen.wait(END_S) == 130
        assert running.popen.stderr is not None
        assert "sent 2 messages" in one_line(running.popen.stderr.read().decode())


# Consume -----------------------------------------------------------------------------------------------------


def test_consume_prints_every_message_in_key_order_and_ends(lockstep: Lockstep, orders: Result) -> None:
    """-e ends at what was stored at the start; each key's messages come as they were sent."""
    result = lockstep("consume", "orders", "-g", "all", "-e")
    assert result.status == 0, result.err
    assert len(result.rows) == 30
    for key in ("N0", "N1", "N2"):
        numbers = [json.loads(row["body"])["n"] for row in result.rows if row["key"] == key]
        assert numbers == sorted(numbers)
    assert {row["msg_id"] for row in result.rows} == {row["msg_id"] for row in orders.rows}
    assert lockstep("consume", "orders", "-g", "all", "-e").out == "", "a second run begins where the first one ended"


def test_count_is_exact_and_the_rest_stays(lockstep: Lockstep, orders: Result) -> None:
    """-c commits so many messages and no more, over any number of queues."""
    first = lockstep("consume", "orders", "-g", "counted", "-c", "7", "-f", "%p:%o\n")
    rest = lockstep("consume", "orders", "-g", "counted", "-e", "-f", "%p:%o\n")
    assert len(first.out.splitlines()) == 7
    assert sorted(first.out.splitlines() + rest.out.splitlines()) == sorted(
        f"{row['queue_id']}:{row['offset']}" for row in orders.rows
    )


def test_tags_choose(lockstep: Lockstep) -> None:
    """-e ends although the last messages stored are of another tag."""
    for tag in ("a", "b", "c"):
        lockstep("produce", "tagged", "-k", "k", "--tags", tag, "--text", stdin=f"{tag}1\n{tag}2\n")
    result = lockstep("consume", "tagged", "-g", "tags", "--tags", "a || b", "-e", "-f", "%s ")
    assert (result.status, result.out) == (0, "a1 a2 b1 b2 ")


def test_a_new_group_begins_where_it_says(lockstep: Lockstep) -> None:
    """`last` is the true end even of a young topic, and a time the first message stored from then on."""
    sent = [lockstep("produce", "begin", "-k", "k", "--text", "-o", "json", stdin=text) for text in ("a", "b")]
    assert all(result.status == 0 for result in sent)
    assert lockstep("consume", "begin", "-g", "from-last", "--from", "last", "-e").out == ""
    stamps = lockstep("consume", "begin", "-g", "from-first", "-e", "-f", "%T\n").out.split()
    late = lockstep("consume", "begin", "-g", "from-time", "--from", stamps[1], "-e", "-f", "%s")
    assert late.out == "b"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_leaves_nothing_behind(lockstep: Lockstep, orders: Result, number: signal.Signals) -> None:
    """Exit 130 after Ctrl-C, 128 and its number after another, offsets committed, locks freed, the member gone."""
    group = f"leaving-{number.name}"
    with lockstep.start("consume", "orders", "-g", group, "-f", "%p:%o\n") as running:
        lines = [running.line() for _ in range(30)]
        assert len(set(lines)) == 30
        assert lockstep("lock", "list", "-g", group, "-o", "json").rows
        result = running.stop(number)
    assert result.status == 128 + number
    assert "consumed 30 messages" in one_line(result.err)
    assert lockstep("lock", "list", "-g", group, "-o", "json").rows == []
    (described,) = lockstep("group", "describe", group, "-o", "json").rows
    assert sum(row["committed_offset"] for row in described["queues"]) == 30
    members = {row["group"]: row["members"] for row in lockstep("group", "list", "-o", "json").rows}
    assert members[group] == 0


def test_a_consumer_that_ends_at_once_frees_the_locks_on_their_way(lockstep: Lockstep) -> None:
    """A command that ends while it takes its queues leaves no lock for its successor to wait for."""
    assert lockstep("topic", "create", "brief", "--queues", "8").status == 0
    for _ in range(3):
        assert lockstep("consume", "brief", "-g", "brief", "-e").status == 0
        assert lockstep("lock", "list", "-g", "brief", "-o", "json").rows == []


def test_nobody_reading_ends_consume_quietly(lockstep: Lockstep, orders: Result) -> None:
    """As SIGPIPE would: status 141, no complaint, and what was not printed stays."""
    with lockstep.start("consume", "orders", "-g", "unread", "-c", "30") as running:
        assert running.popen.stdout is not None
        running.popen.stdout.close()
        assert running.popen.wait(END_S) == 141
        assert running.popen.stderr is not None
        assert without_progress(running.popen.stderr.read().decode()) == ""
    assert len(lockstep("consume", "orders", "-g", "unread", "-e").rows) == 30


def test_a_reader_who_stops_reading_stops_the_printing_alone(lockstep: Lockstep) -> None:
    """With stdout full the consumer goes on renewing its locks, and loses nothing when it is read again."""
    text = "x" * 4000 + "\n"
    assert lockstep("produce", "slow", "-k", "k", "--text", stdin=text * 200).status == 0
    with lockstep.start("consume", "slow", "-g", "slow", "-c", "200", "-f", "%o\n%s\n") as running:
        assert running.line() == "0\n"
        held = [row for row in lockstep("lock", "list", "-g", "slow", "-o", "json").rows if row["topic"] == "slow"]
        assert held
        result = running.ended()
    assert result.status == 0
    assert result.out == "".join(f"{n}\n{text}" for n in range(200)).removeprefix("0\n")


def test_a_profile_says_what_it_changes(lockstep: Lockstep, orders: Result) -> None:
    """The articles' numbers beside 4.9.8's, on stderr; messages come as always."""
    result = lockstep("consume", "orders", "-g", "profile", "-e", "-f", "%o\n", "--profile", "articles")
    assert (result.status, len(result.out.splitlines())) == (0, 30)
    assert result.err.splitlines()[0] == (
        "lockstep: profile articles: pull_delay_when_exception_ms = 3000 (4.9.8: 1000), rebalance_interval_ms = 10000 "
        "(4.9.8: 20000), persist_consumer_offset_interval_ms = 10000 (4.9.8: 5000)"
    )


@pytest.mark.parametrize(
    ("properties", "count"),
    [
        (["consumeFromWhere=CONSUME_FROM_LAST_OFFSET"], 0),
        (["consumeFromWhere=CONSUME_FROM_FIRST_OFFSET"], 30),
        (["consumeFromWhere=CONSUME_FROM_TIMESTAMP"], 30),  # of the last 30 minutes
        (["consumeFromWhere=CONSUME_FROM_TIMESTAMP", "consumeTimestamp=29990101000000"], 0),  # RocketMQ: the last ones
        (["consumeFromWhere=CONSUME_FROM_TIMESTAMP", "consumeTimestamp=20200101000000"], 30),
    ],
    ids=["last", "first", "half an hour", "later", "long ago"],
)
def test_where_a_new_group_begins_by_rocketmqs_names(
    lockstep: Lockstep, orders: Result, tmp_path: Path, properties: list[str], count: int
) -> None:
    """-D wins over --from, on a young queue too."""
    options = [word for text in properties for word in ("-D", text)]
    result = lockstep("consume", "orders", "-g", tmp_path.name.replace(".", "-"), "-e", "-f", "%o\n", *options)
    assert (result.status, len(result.out.splitlines())) == (0, count), result.err


def test_broadcasting_by_its_property(lockstep: Lockstep, orders: Result, tmp_path: Path) -> None:
    """Offsets lie in the folder that is named, and no broker has any; the next run begins where this one ended."""
    options = ["-D", "messageModel=BROADCASTING", "-D", f"rocketmq.client.localOffsetStoreDir={tmp_path}"]
    first = lockstep("consume", "orders", "-g", "broadcast", "-e", "-f", "%o\n", *options)
    assert (first.status, len(first.out.splitlines())) == (0, 30), first.err
    assert "broadcast" in {path.name for path in tmp_path.rglob("*")}
    again = lockstep("consume", "orders", "-g", "broadcast", "-e", "-f", "%o\n", *options)
    assert (again.status, again.out) == (0, "")
    assert "no broker knows group 'broadcast'" in lockstep("offset", "show", "broadcast").err


def test_one_thread_prints(lockstep: Lockstep, orders: Result) -> None:
    """A number of threads is refused with a word, not ignored in silence."""
    result = lockstep("consume", "orders", "-g", "threads", "-c", "1", "-D", "consumeThreadMax=5")
    assert "messages are printed by one thread, whatever consumeThreadMin and consumeThreadMax are" in result.err
    assert (result.status, len(result.rows)) == (0, 1)


def test_a_consumer_without_a_queue_says_why(lockstep: Lockstep) -> None:
    """After two seconds one line names who holds the queues."""
    assert lockstep("topic", "create", "single", "--queues", "1").status == 0
    with lockstep.start("consume", "single", "-g", "single", "-v") as holder:
        assert holder.popen.stderr is not None
        while b"queue_acquired queue=single" not in (said := holder.popen.stderr.readline()):
            assert said
        owner = lockstep("lock", "list", "-g", "single", "-o", "json").rows[-1]["owner"]
        with lockstep.start("consume", "single", "-g", "single") as waiting:
            assert waiting.popen.stderr is not None
            line = waiting.popen.stderr.readline().decode()
    assert line.startswith("lockstep: waiting for a queue of single: group single has 1 locked, ")
    assert owner in line


# Lists -------------------------------------------------------------------------------------------------------


def test_topics_are_listed_as_table_and_as_json(lockstep: Lockstep, orders: Result) -> None:
    """The users' topics, and with -a everybody's."""
    table = lockstep("topic", "list").out.splitlines()
    assert table[0].split() == ["TOPIC", "QUEUES", "BROKERS"]
    assert ["orders", "4", "broker-a"] in [line.split() for line in table]
    names = [row["topic"] for row in lockstep("topic", "list", "-o", "json").rows]
    everything = [row["topic"] for row in lockstep("topic", "list", "-a", "-o", "json").rows]
    assert "TBW102" not in names
    assert "TBW102" in everything
    assert set(names) < set(everything)


def test_a_topic_keeps_its_queues_unless_forced(lockstep: Lockstep) -> None:
    """Another number of queues would move keys, so it takes --force; the same number again is no error."""
    assert lockstep("topic", "create", "fixed", "--queues", "3").status == 0
    assert lockstep("topic", "create", "fixed", "--queues", "3").status == 0
    refused = lockstep("topic", "create", "fixed", "--queues", "5")
    assert refused.status == 1
    assert "has 3 queues on broker-a" in one_line(refused.err)
    assert "--force" in refused.err
    assert lockstep("topic", "create", "fixed", "--queues", "5", "--force").status == 0
    rows = lockstep("topic", "list", "-o", "json").rows
    assert {"topic": "fixed", "queues": 5, "brokers": ["broker-a"]} in rows
