"""Every example runs as it stands, as a process of its own against a real broker, and does what it says."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lockstep.client import AdminClient
from tests.commands import TIMEOUT_S, Lockstep, Running, running_broker
from tests.integration.harness.processes import until
from tests.testing.plugin_project import Project

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = 100


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """A broker for all examples; they find it through NAMESRV_ADDR."""
    with running_broker("--dead-letter-at-once") as command:
        yield command


def feed(lockstep: Lockstep, *arguments: str, lines: Iterable[object]) -> None:
    text = "".join([f"{line}\n" for line in lines])
    assert lockstep("produce", *arguments, "--text", stdin=text).status == 0


def test_producer_and_consumer_keep_each_aircrafts_story(lockstep: Lockstep) -> None:
    """What one stores the other prints, each aircraft's events in order, and Ctrl-C is a clean end."""
    with lockstep.program(EXAMPLES / "ordered_producer.py") as producer:
        sent = producer.ended()
    assert sent.status == 0, sent.err
    assert re.fullmatch(r"(SEND_OK \d \d+ [0-9A-F]{32}\n){15}", sent.out)
    stories = defaultdict(list)
    with lockstep.program(EXAMPLES / "ordered_consumer.py") as consumer:
        for _ in range(15):
            _queue, _offset, tail, event = consumer.line().split()
            stories[tail].append(event)
        ended = consumer.stop(signal.SIGINT)
    assert (ended.status, ended.err) == (0, "")
    story = ["boards", "departs", "climbs", "lands", "parks"]
    assert stories == {"N14228": story, "N24211": story, "N619AA": story}
    assert lockstep("lock", "list", "-g", "example-consumer", "-o", "json").rows == []


@pytest.mark.long
def test_broadcasting(lockstep: Lockstep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two members get every message, and one that was away gets what came meanwhile."""
    monkeypatch.setenv("HOME", str(tmp_path))
    feed(lockstep, "example-prices", "-k", "a", lines=[1, 2])
    with (
        lockstep.program(EXAMPLES / "broadcasting.py", "left") as left,
        lockstep.program(EXAMPLES / "broadcasting.py", "right") as right,
    ):
        assert [member.line() for member in (left, right, left, right)] == ["1\n", "1\n", "2\n", "2\n"]
        assert left.stop(signal.SIGINT) == (0, "", "")
        feed(lockstep, "example-prices", "-k", "a", lines=[3])
        assert right.line() == "3\n"
    with lockstep.program(EXAMPLES / "broadcasting.py", "left") as left:
        assert left.line() == "3\n"
    assert list(tmp_path.glob(".rocketmq_offsets/*@left/example-members/offsets.json"))


@pytest.mark.long
def test_metrics(lockstep: Lockstep) -> None:
    """The address that it prints tells how many messages were handled."""
    feed(lockstep, "orders", "-k", "a", lines=range(9))
    handled = 'outcome="handled",topic="orders"} 9.0'
    with lockstep.program(EXAMPLES / "metrics.py") as program:
        address = program.line().strip()
        deadline_s = time.monotonic() + TIMEOUT_S
        while handled not in (text := urllib.request.urlopen(address, timeout=TIMEOUT_S).read().decode()):
            assert time.monotonic() < deadline_s, text


@pytest.mark.long
def test_plain_listener(lockstep: Lockstep) -> None:
    """Messages come in order within a queue, on the consumer's own threads."""
    feed(lockstep, "example-plain", lines=range(8))
    with lockstep.program(EXAMPLES / "plain_listener.py") as program:
        lines = [program.line().split(maxsplit=2) for _ in range(8)]
    assert sorted(int(body) for _, body, _ in lines) == list(range(8))
    assert {thread.startswith("example-plain-listener listener") for _, _, thread in lines} == {True}
    by_queue = defaultdict(list)
    for queue_id, body, _ in lines:
        by_queue[queue_id].append(int(body))
    assert all(bodies == sorted(bodies) for bodies in by_queue.values())


@pytest.mark.long
def test_manual_commit(lockstep: Lockstep) -> None:
    """Units of three are committed; the one rolled back comes again whole."""
    feed(lockstep, "example-units", "-k", "account-7", lines=range(1, 10))
    with lockstep.program(EXAMPLES / "manual_commit.py") as program:
        lines = [program.line().strip() for _ in range(12)]
    assert lines[:6] == ["1", "2", "3 COMMIT", "4", "5", "6 ROLLBACK"]
    assert lines[6:] == ["4", "5", "6 COMMIT", "7", "8", "9 COMMIT"]


@pytest.mark.long
def test_batch(lockstep: Lockstep) -> None:
    """A batch comes out in order, in calls of up to 32."""
    with lockstep.program(EXAMPLES / "batch.py") as program:
        result = program.ended()
    assert result.status == 0, result.err
    calls = [[int(word) for word in re.findall(r"\d+", line)] for line in result.out.splitlines()]
    assert sum(count for count, _, _ in calls) == 100
    assert all(count <= 32 and last - first == count - 1 for count, first, last in calls)
    assert [first for _, first, _ in calls] == sorted(first for _, first, _ in calls)


@pytest.mark.long
def test_dead_letter(lockstep: Lockstep) -> None:
    """Three attempts, then the queue goes on, and the poison is in the dead-letter topic."""
    feed(lockstep, "example-poison", "-k", "a", lines=("poison", "good"))
    with lockstep.program(EXAMPLES / "dead_letter.py") as program:
        lines = [program.line() for _ in range(4)]
    assert lines == ["poison, attempt 1\n", "poison, attempt 2\n", "poison, attempt 3\n", "good, attempt 1\n"]
    dead = lockstep("consume", "%DLQ%example-dead-letter", "-g", "morgue", "-e", "-f", "%s\n")
    assert dead.out == "poison\n"


@pytest.mark.long
def test_by_key(lockstep: Lockstep) -> None:
    """Parcels A and B share a queue: while A is lost B's story goes on to its end, and each is told in order."""
    assert lockstep("topic", "create", "example-parcels", "--queues", "1").status == 0
    events = [("A", "picked"), ("B", "picked"), ("A", "lost"), ("A", "found"), ("B", "sent"), ("B", "there")]
    lines = [json.dumps({"parcel": parcel, "event": event}) for parcel, event in events]
    fields = ("--key-field", "parcel", "--body-field", "event")
    assert lockstep("produce", "example-parcels", *fields, stdin="\n".join(lines)).status == 0
    with lockstep.program(EXAMPLES / "by_key.py") as program:
        told = [program.line().rstrip() for _ in events]
    assert [line for line in told if line[0] == "B"] == ["B picked", "B sent", "B there"]
    assert told[-2:] == ["A lost", "A found"]


@pytest.mark.long
def test_concurrent_consumer(lockstep: Lockstep) -> None:
    """Every job is done, the one that failed a second time and after the others."""
    feed(lockstep, "example-jobs", lines=range(1, 21))
    with lockstep.program(EXAMPLES / "concurrent_consumer.py") as program:
        lines = [program.line() for _ in range(21)]
    assert sorted(lines[:-1]) == sorted(f"job {number}, attempt 1\n" for number in range(1, 21))
    assert lines[-1] == "job 13, attempt 2\n"


@pytest.mark.long
def test_watch_locks(lockstep: Lockstep) -> None:
    """It prints the locks of a running consumer with the time they have left."""
    feed(lockstep, "example-watched", "-k", "a", lines="x")
    with lockstep.start("consume", "example-watched", "-g", "watched", "-f", "%s\n") as consumer:
        consumer.line()
        with lockstep.program(EXAMPLES / "watch_locks.py") as program:
            result = program.ended()
    assert result.status == 0, result.err
    assert re.search(
        r"^watched example-watched@broker-a:\d 127\.0\.0\.1@\d+#\d+ \d\d s left$", result.out, re.MULTILINE
    )


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.long
async def test_sqlite_once(lockstep: Lockstep, tmp_path: Path) -> None:
    """Handled twice, because the offset was taken back, each event is stored once."""
    feed(lockstep, "example-events", "-k", "a", lines=range(20))
    path = tmp_path / "events.db"
    async with AdminClient(name_server=lockstep.name_server) as admin:
        queues = (await admin.route("example-events")).readable_queues("example-events")
        for told in ("stored", "known"):
            for queue in queues:
                await admin.update_consumer_offset("example-sqlite", queue, 0)
            with lockstep.program(EXAMPLES / "sqlite_once.py", str(path)) as program:
                lines = [await asyncio.to_thread(program.line) for _ in range(20)]
                result = await asyncio.to_thread(program.stop, signal.SIGINT)
            assert lines == [f"{number} {told}\n" for number in range(20)]
            assert result.err.endswith("KeyboardInterrupt\n")
            offsets = [await admin.consumer_offset("example-sqlite", queue) for queue in queues]
            assert sorted(offset or 0 for offset in offsets) == [0, 0, 0, 20]
    with closing(sqlite3.connect(path)) as database:
        bodies = [row[0] for row in database.execute("SELECT body FROM event ORDER BY queue, offset")]
    assert [int(body) for body in bodies] == list(range(20))


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.long
async def test_fenced_effects(tmp_path: Path) -> None:
    """A process that is stopped beyond its lease writes nothing any more, and every order is written once."""
    path = tmp_path / "orders.db"
    life_ms = 2000
    options = ("--lock-mode", "fenced", "-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={life_ms}")
    with running_broker(*options) as command:
        assert command("topic", "create", "example-orders", "--queues", "1").status == 0
        with (
            command.program(EXAMPLES / "fenced_sqlite.py", str(path)) as first,
            closing(sqlite3.connect(path, timeout=30)) as database,
        ):
            _wait_for(first, "example-orders@broker-a:0 acquired")
            feed(command, "example-orders", "-k", "a", lines=range(ORDERS // 2))
            await until(lambda: _written(database) > 3, "the first process writes")
            first.popen.send_signal(signal.SIGSTOP)
            try:
                feed(command, "example-orders", "-k", "a", lines=range(ORDERS // 2, ORDERS))  # never of the first
                with command.program(EXAMPLES / "fenced_sqlite.py", str(path)) as second:
                    _wait_for(second, "example-orders@broker-a:0 acquired")  # after the lease
                    await until(lambda: _written(database) > 10, "the second one continues")
                    first.popen.send_signal(signal.SIGCONT)
                    _wait_for(first, "example-orders@broker-a:0 is lost")
                    await until(lambda: _written(database) == ORDERS, "all is written")
                    assert first.stop(signal.SIGINT).status == 0
            finally:
                first.popen.send_signal(signal.SIGCONT)
            rows = database.execute("SELECT epoch, body FROM effect ORDER BY queue_offset").fetchall()
    assert [int(body) for _, body in rows] == list(range(ORDERS))
    epochs = [epoch for epoch, _ in rows]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 2


def _wait_for(program: Running, beginning: str) -> None:
    while not program.line().startswith(beginning):
        pass


def _written(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT count(*) FROM effect").fetchone()[0])


@pytest.mark.long
def test_transactions(lockstep: Lockstep) -> None:
    """Consumers see the orders that were committed, and no others."""
    with lockstep.program(EXAMPLES / "transaction.py") as program:
        result = program.ended()
    assert (result.status, result.err) == (0, "")
    states = [line.split() for line in result.out.splitlines()]
    committed = [number for number, state in states if state == "COMMIT_MESSAGE"]
    assert (len(states), committed) == (6, ["0", "2", "4"])
    with lockstep.start("consume", "example-paid", "-g", "paid", "-f", "%s\n") as consumer:
        seen = sorted(consumer.line().rstrip() for _ in committed)
    assert seen == [f"order {number}" for number in committed]


@pytest.mark.long
def test_request_and_reply(lockstep: Lockstep) -> None:
    """Each question gets its own answer."""
    assert lockstep("topic", "create", "example-squares").status == 0
    with lockstep.program(EXAMPLES / "request_reply.py") as program:
        result = program.ended()
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines() == ["3 9", "4 16", "5 25"]


@pytest.mark.long
def test_poll(lockstep: Lockstep) -> None:
    """Each queue in order; what was printed before Ctrl-C does not come again."""
    feed(lockstep, "example-polled", lines=range(8))
    with lockstep.program(EXAMPLES / "poll.py") as program:
        lines = [program.line().split() for _ in range(8)]
        ended = program.stop(signal.SIGINT)
    assert (ended.status, ended.err) == (0, "")
    assert sorted(int(body) for _, _, body in lines) == list(range(8))
    by_queue = defaultdict(list)
    for queue_id, offset, _ in lines:
        by_queue[queue_id].append(int(offset))
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    feed(lockstep, "example-polled", lines=("next",))
    with lockstep.program(EXAMPLES / "poll.py") as program:
        assert program.line().split()[2] == "next"


@pytest.mark.long
def test_pull(lockstep: Lockstep) -> None:
    """All there is, and at the next run only what came since."""
    feed(lockstep, "example-pulled", lines=range(8))
    bodies = []
    for extra in ((), ("8",), ()):
        feed(lockstep, "example-pulled", lines=extra)
        with lockstep.program(EXAMPLES / "pull.py") as program:
            result = program.ended()
        assert result.status == 0, result.err
        bodies.append(sorted(int(line.split()[2]) for line in result.out.splitlines()))
    assert bodies == [list(range(8)), [8], []]


@pytest.mark.long
def test_the_plugins_example_passes(tmp_path: Path) -> None:
    """As a file of tests that pytest is given."""
    report = Project(tmp_path).run(str(EXAMPLES / "test_orders.py"))
    assert report.counts() == {"passed": 2}, report.text


@pytest.mark.long
def test_a_listener_is_tested_with_many_seeds() -> None:
    """Under plain pytest, without the plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:lockstep", str(EXAMPLES / "test_simulated.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout


def test_every_example_has_its_test() -> None:
    """No example is left out of this file."""
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == set(re.findall(r'EXAMPLES / "(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
