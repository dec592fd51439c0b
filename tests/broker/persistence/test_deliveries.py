"""Deliveries in order outlive the broker: in RocketMQ's file, and after a crash by the log (docs/wire.md 18)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.core.ack import Delivery, ack, change_invisible
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.commit import commit
from lockstep.broker.core.groups import delete_group
from lockstep.broker.core.pop import Pop, Popped, pop
from lockstep.broker.core.refused import Refused
from lockstep.broker.core.revive import run_pops, save_checkpoints
from lockstep.broker.core.topics import delete_topic
from lockstep.broker.core.wanted import expressed
from lockstep.broker.messages.pop.journal import replay_journal
from lockstep.broker.messages.pop.port import Answered
from lockstep.broker.ownership.claim import Claim
from lockstep.protocol.bodies.pop import RequestMode
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.names import POP_JOURNAL_TOPIC
from lockstep.protocol.receipts import ORDERED, Receipt
from lockstep.store import StoreFull
from tests.broker.helpers import NOW_MS, FakeConnection
from tests.broker.persistence.kept_broker import Kept, kept
from tests.broker.persistence.test_delay_recovery import killed, write_offsets
from tests.store.stores import record

LIFE: dict[str, Any] = {"flush_sync": False, "flush_interval_ms": 60_000}  # nothing is written but by a test
FENCED: dict[str, Any] = {**LIFE, "lock_mode": "fenced"}
KEY = "__SHARDINGKEY\x01"


def popped(opened: Kept, count: int = 32, now_ms: int = NOW_MS) -> Popped:
    asked = Pop("c1", "G", "T", -1, count, 10_000, True, False, None, expressed(opened.broker, "T", None, "*"))
    return pop(opened.broker, FakeConnection(), asked, now_ms)


def offsets(found: Popped) -> list[int]:
    return [message.queue_offset for message in decode_messages(found.body)]


def acked(opened: Kept, found: Popped, offset: int, now_ms: int = NOW_MS) -> Answered:
    receipt = Receipt(0, found.pop_ms, 10_000, ORDERED, 0, "broker-a", 0, offset)
    return ack(opened.broker, FakeConnection(), Delivery("G", "T", receipt), now_ms)


@pytest.mark.parametrize("life", [LIFE, FENCED], ids=["faithful", "fenced"])
async def test_a_clean_stop_keeps_what_is_held_and_acknowledged(tmp_path: Path, life: dict[str, Any]) -> None:
    async with kept(tmp_path, **life) as opened:
        for _ in range(3):
            opened.send(b"x")
        found = popped(opened, 2)
        assert acked(opened, found, 1) is Answered.DONE
    async with kept(tmp_path, **life) as again:
        assert offsets(popped(again)) == []
        assert acked(again, found, 0) is Answered.DONE
        assert again.broker.catalog.offsets.query("G", "T", 0) == 2
        assert offsets(popped(again)) == [2]


async def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    async with kept(tmp_path, **LIFE) as opened:
        for _ in range(3):
            opened.send(b"x")
        acked(opened, popped(opened), 1)
    record = json.loads((tmp_path / "config" / "consumerOrderInfo.json").read_text())["table"]["T@G"]["0"]
    assert record == {"cm": 2, "i": 10_000, "l": NOW_MS, "o": [0, 1, 2], "oc": {}, "ot": {}, "popTime": NOW_MS}


async def test_request_modes_are_kept(tmp_path: Path) -> None:
    async with kept(tmp_path, **LIFE) as opened:
        opened.broker.messages.pops.modes.put(RequestMode("T", "G", "POP", 1))
    async with kept(tmp_path, **LIFE) as again:
        assert again.broker.messages.pops.modes.find("T", "G") == RequestMode("T", "G", "POP", 1)


async def test_after_a_kill_rocketmqs_way_forgets_who_holds_what(tmp_path: Path) -> None:
    async with kept(tmp_path / "0", **LIFE) as opened:
        opened.send(b"x")
        popped(opened)
        left = killed(tmp_path / "0", "1")
    async with kept(left, **LIFE) as again:
        assert offsets(popped(again)) == [0]


async def test_after_a_kill_the_fenced_way_knows_who_holds_what(tmp_path: Path) -> None:
    async with kept(tmp_path / "0", **FENCED) as opened:
        for key in "aab":
            opened.send(b"x", properties=KEY + key)
        first = popped(opened, 1)
        write_offsets(opened)
        second = popped(opened, 1, NOW_MS + 1)
        assert (offsets(first), offsets(second)) == ([0], [2])
        left = killed(tmp_path / "0", "1")
    async with kept(left, **FENCED) as again:
        assert offsets(popped(again, now_ms=NOW_MS + 9999)) == []
        assert acked(again, first, 0) is Answered.DONE
        assert offsets(popped(again, now_ms=NOW_MS + 9999)) == [1]
        assert acked(again, first, 2) is Answered.STALE
        assert acked(again, second, 2) is Answered.DONE


async def test_after_a_kill_what_waited_for_an_acknowledgement_proves_it(tmp_path: Path) -> None:
    """The acknowledgement of 0 is in no file, but 1 was delivered after it: 0 does not come again behind it."""
    async with kept(tmp_path / "0", **FENCED) as opened:
        for key in "aaab":
            opened.send(b"x", properties=KEY + key)
        write_offsets(opened)
        first = popped(opened, 1)
        assert acked(opened, popped(opened, 1), 3) is Answered.DONE
        assert acked(opened, first, 0) is Answered.DONE
        second = popped(opened, 1)
        left = killed(tmp_path / "0", "1")
    async with kept(left, **FENCED) as again:
        assert again.broker.catalog.offsets.query("G", "T", 0) == 1
        assert offsets(popped(again, now_ms=NOW_MS + 9999)) == []
        assert acked(again, second, 1) is Answered.DONE
        assert offsets(popped(again, now_ms=NOW_MS + 20_000)) == [2]


async def test_after_a_kill_what_a_reset_took_back_is_not_acknowledged(tmp_path: Path) -> None:
    """Also when the group's offset was set to where it was: the file has acknowledgements of before."""
    async with kept(tmp_path / "0", **FENCED) as opened:
        for key in "aab":
            opened.send(b"x", properties=KEY + key)
        first = popped(opened)
        assert [acked(opened, first, offset) for offset in (1, 2)] == [Answered.DONE] * 2
        write_offsets(opened)
        commit(opened.broker, FakeConnection(), Claim("G", "T", 0), 0, NOW_MS + 1)
        second = popped(opened, 1, NOW_MS + 2)
        left = killed(tmp_path / "0", "1")
    async with kept(left, **FENCED) as again:
        with pytest.raises(Refused, match="offset is illegal"):
            acked(again, first, 2)
        assert offsets(popped(again, now_ms=NOW_MS + 3)) == [2]
        assert acked(again, second, 0) is Answered.DONE
        assert offsets(popped(again, now_ms=NOW_MS + 3)) == [1]


@pytest.mark.parametrize("stops", [False, True], ids=["", "and a clean stop"])
async def test_after_a_kill_nothing_is_acknowledged_before_what_comes_again(tmp_path: Path, stops: bool) -> None:
    """The acknowledgement of 0 is lost, so 0 comes again: then 1 must come again behind it."""
    async with kept(tmp_path / "0", **FENCED) as opened:
        for key in "aab":
            opened.send(b"x", properties=KEY + key)
        found = popped(opened)
        assert acked(opened, found, 0) is Answered.DONE
        left = killed(tmp_path / "0", "1")
    if stops:
        async with kept(left, **FENCED):
            pass
    async with kept(left, **FENCED) as again:
        assert acked(again, found, 1) is Answered.STALE
        assert acked(again, found, 2) is Answered.DONE
        assert offsets(popped(again, now_ms=NOW_MS + 10_000)) == [0, 1]


async def test_after_a_kill_a_renewed_delivery_is_as_long_as_before(tmp_path: Path) -> None:
    async with kept(tmp_path / "0", **FENCED) as opened:
        opened.send(b"x")
        found = popped(opened)
        receipt = Receipt(0, found.pop_ms, 10_000, ORDERED, 0, "broker-a", 0, 0)
        change_invisible(opened.broker, FakeConnection(), Delivery("G", "T", receipt), 30_000, NOW_MS + 5000)
        left = killed(tmp_path / "0", "1")
    async with kept(left, **FENCED) as again:
        assert offsets(popped(again, now_ms=NOW_MS + 34_999)) == []
        assert acked(again, found, 0, NOW_MS + 34_999) is Answered.DONE


async def test_a_start_reads_the_journal_from_its_place_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept(tmp_path, **FENCED) as opened:
        for _ in range(100):
            opened.send(b"x")
            acked(opened, found := popped(opened), offsets(found)[0])
        store, read = opened.store, list[int]()
        place = store.entries(POP_JOURNAL_TOPIC, 0, 90, 1)[0].commit_log_offset

        def get(topic: str, queue_id: int, queue_offset: int, *rest: Any, **named: Any) -> Any:
            if topic == POP_JOURNAL_TOPIC:
                read.append(queue_offset)
            return type(store).get(store, topic, queue_id, queue_offset, *rest, **named)

        monkeypatch.setattr(store, "get", get)
        tables = opened.broker.messages.pops, opened.broker.catalog.offsets
        assert replay_journal(store, *tables, place, NOW_MS) == 10
        assert read == [90]


async def test_a_key_that_is_stuck_makes_no_record_long(tmp_path: Path) -> None:
    """Whatever is acknowledged behind it, with gaps, is known after a kill."""
    async with kept(tmp_path / "0", **FENCED) as opened:
        for number in range(300):
            opened.send(b"x", properties=KEY + ("a" if number % 100 == 0 else f"b{number}"))
        write_offsets(opened)
        held = popped(opened, 1)
        for _ in range(9):
            found = popped(opened)
            for offset in offsets(found):
                assert acked(opened, found, offset) is Answered.DONE
        last = popped(opened)
        newest = opened.store.get(POP_JOURNAL_TOPIC, 0, opened.store.max_offset(POP_JOURNAL_TOPIC, 0) - 1, 1, None)
        assert len(newest.body) < 400
        left = killed(tmp_path / "0", "1")
    async with kept(left, **FENCED) as again:
        assert [acked(again, last, offset) for offset in offsets(last)] == [Answered.DONE] * 9
        assert acked(again, held, 0) is Answered.DONE
        assert again.broker.catalog.offsets.query("G", "T", 0) == 100
        assert offsets(popped(again)) == [100, 200]


async def test_an_unreadable_file_is_said_and_left_out(tmp_path: Path) -> None:
    async with kept(tmp_path / "0", **LIFE) as opened:
        opened.send(b"x")
        popped(opened)
    for path in (tmp_path / "0" / "config").glob("consumerOrderInfo.json*"):
        path.write_text('{"table": {"T@G": {"0": {"o": 7}}}}')
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    async with kept(tmp_path / "1", **LIFE) as again:
        assert "config_read_failed" in again.log.names("error")
        assert offsets(popped(again)) == [0]


def popped_any(opened: Kept, count: int, now_ms: int) -> Popped:
    asked = Pop("c1", "G", "T", -1, count, 60_000, False, False, None, expressed(opened.broker, "T", None, "*"))
    return pop(opened.broker, FakeConnection(), asked, now_ms)


async def test_a_checkpoint_is_in_the_log_before_the_offset_goes_on(tmp_path: Path) -> None:
    """Whatever is not acknowledged comes again after a kill; what was acknowledged after ten seconds does not."""
    async with kept(tmp_path / "0", **LIFE) as opened:
        for _ in range(4):
            opened.send(b"x")
        found = popped_any(opened, 2, NOW_MS)
        save_checkpoints(opened.broker, NOW_MS + 9000)
        assert opened.broker.catalog.offsets.query("G", "T", 0) == 0
        save_checkpoints(opened.broker, NOW_MS + 11_000)
        assert opened.broker.catalog.offsets.query("G", "T", 0) == 2
        receipt = Receipt(0, found.pop_ms, 60_000, found.revive_queue_id, 0, "broker-a", 0, 1)
        assert ack(opened.broker, FakeConnection(), Delivery("G", "T", receipt), NOW_MS + 12_000) is Answered.DONE
        popped_any(opened, 2, NOW_MS + 12_000)
        write_offsets(opened)
        left = killed(tmp_path / "0", "1")
    async with kept(left, **LIFE) as again:
        assert offsets(popped_any(again, 32, NOW_MS + 13_000)) == [2, 3]
        run_pops(again.broker, NOW_MS + 60_000)
        (message,) = decode_messages(popped_any(again, 32, NOW_MS + 60_000).body)
        assert message.properties["POP_CK"].split(" ")[4] == "1"
        save_checkpoints(again.broker, NOW_MS + 60_000)
    async with kept(left, **LIFE) as last:
        # The first message was delivered anew a moment before; the others are in the log until their time is over.
        assert len(offsets(popped_any(last, 32, NOW_MS + 60_001))) == 1
        run_pops(last.broker, NOW_MS + 73_000)
        assert len(offsets(popped_any(last, 32, NOW_MS + 73_000))) == 2


async def test_many_checkpoints_enter_the_log_in_steps(tmp_path: Path) -> None:
    """Whatever ends between two steps does not enter the log."""
    async with kept(tmp_path, **LIFE) as opened:
        for _ in range(250):
            opened.send(b"x")
        found = [popped_any(opened, 1, NOW_MS) for _ in range(250)]
        turns = list[Callable[[], None]]()
        work, checkpoints = opened.broker.work, opened.broker.messages.pops.checkpoints
        work.soon = turns.append
        save_checkpoints(opened.broker, NOW_MS + 11_000)
        assert len(checkpoints.unsaved(NOW_MS + 1)) == 150
        assert opened.broker.catalog.offsets.query("G", "T", 0) == 100
        receipt = Receipt(249, found[249].pop_ms, 60_000, found[249].revive_queue_id, 0, "broker-a", 0, 249)
        assert ack(opened.broker, FakeConnection(), Delivery("G", "T", receipt), NOW_MS + 11_000) is Answered.DONE
        turns.pop()()
        assert (turns, checkpoints.unsaved(NOW_MS + 1), len(checkpoints)) == ([], [], 249)
        topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
        assert sum(opened.store.max_offset(topic, queue_id) for queue_id in range(8)) == 249
        assert opened.broker.catalog.offsets.query("G", "T", 0) == 250


async def test_what_the_revive_log_says_is_rocketmqs(tmp_path: Path) -> None:
    async with kept(tmp_path, **LIFE) as opened:
        for _ in range(2):
            opened.send(b"x")
        found = popped_any(opened, 2, NOW_MS)
        save_checkpoints(opened.broker, NOW_MS + 11_000)
        receipt = Receipt(0, found.pop_ms, 60_000, 0, 0, "broker-a", 0, 1)
        ack(opened.broker, FakeConnection(), Delivery("G", "T", receipt), NOW_MS + 12_000)
        log = opened.broker.messages.store.get("rmq_sys_REVIVE_LOG_DefaultCluster", 0, 0, 32, None)
    checkpoint, acknowledged = decode_messages(log.body)
    assert checkpoint.body.decode() == (
        f'{{"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":60000,"n":2,"pt":{NOW_MS},"q":0,'
        f'"reviveTime":{NOW_MS + 60_000},"ro":0,"so":0,"sp":false,"t":"T"}}'
    )
    assert acknowledged.body.decode() == f'{{"ao":1,"bn":"broker-a","c":"G","pt":{NOW_MS},"q":0,"so":0,"t":"T"}}'
    assert (checkpoint.properties["TAGS"], acknowledged.properties["TAGS"]) == ("ck", "ack")
    assert checkpoint.properties["UNIQ_KEY"] == f"T@0@0@G@{NOW_MS}@broker-a@ck"


@pytest.mark.parametrize("topic", [POP_JOURNAL_TOPIC, "rmq_sys_REVIVE_LOG_DefaultCluster"])
@pytest.mark.parametrize("body", [b"{", b"[1]", b"{}", b'{"t":"T","c":"G","q":0,"so":0,"pt":1,"aol":[1]}'])
async def test_foreign_journals_hold_up_no_start(tmp_path: Path, topic: str, body: bytes) -> None:
    async with kept(tmp_path, **FENCED) as opened:
        opened.send(b"x")
        opened.broker.messages.put(record(topic=topic, body=body))
    async with kept(tmp_path, **FENCED) as again:
        assert offsets(popped(again)) == [0]


async def test_a_revived_message_is_revived_once(tmp_path: Path) -> None:
    """An older delivery that is open keeps the place from which the log is read again."""
    async with kept(tmp_path / "0", **LIFE) as opened:
        for _ in range(9):
            opened.send(b"x")
        popped_any(opened, 1, NOW_MS)
        for _ in range(7):
            popped_any(opened, 0, NOW_MS)
        asked = Pop("c1", "G", "T", -1, 1, 5000, False, False, None, expressed(opened.broker, "T", None, "*"))
        assert pop(opened.broker, FakeConnection(), asked, NOW_MS).revive_queue_id == 0
        save_checkpoints(opened.broker, NOW_MS + 11_000)
        run_pops(opened.broker, NOW_MS + 11_000)
        save_checkpoints(opened.broker, NOW_MS + 11_000)
    async with kept(tmp_path / "0", **LIFE) as again:
        run_pops(again.broker, NOW_MS + 12_000)
        assert again.broker.messages.store.max_offset("%RETRY%G_T", 0) == 1


ENDS: dict[str, Callable[[Broker], object]] = {
    "reset": lambda broker: commit(broker, FakeConnection(), Claim("G", "T", 0), 3, NOW_MS + 12_000),
    "topic": lambda broker: delete_topic(broker, FakeConnection(), "T", NOW_MS + 12_000),
    "group": lambda broker: delete_group(broker, FakeConnection(), "G", True, NOW_MS + 12_000),
}


@pytest.mark.parametrize("how", ENDS)
async def test_what_a_reset_ended_is_not_revived_after_a_kill(tmp_path: Path, how: str) -> None:
    """Nor deliveries of a topic or a group that was deleted."""
    async with kept(tmp_path / "0", **LIFE) as opened:
        for _ in range(3):
            opened.send(b"x")
        popped_any(opened, 1, NOW_MS)
        popped_any(opened, 2, NOW_MS)
        save_checkpoints(opened.broker, NOW_MS + 11_000)
        ENDS[how](opened.broker)
        await opened.writers.flush()
        left = killed(tmp_path / "0", "1")
    async with kept(left, **LIFE) as again:
        assert len(again.broker.messages.pops.checkpoints) == 0


async def test_a_full_store_does_not_hold_up_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept(tmp_path, **LIFE) as opened:
        opened.send(b"x")
        popped_any(opened, 1, NOW_MS)
        save_checkpoints(opened.broker, NOW_MS + 11_000)

        def full(*_: object) -> None:
            raise StoreFull("full")

        with monkeypatch.context() as patched:
            patched.setattr(opened.store, "append_all", full)
            ENDS["reset"](opened.broker)
        assert opened.broker.catalog.offsets.query("G", "T", 0) == 3
        assert "pop_checkpoint_failed" in opened.log.names("error")


async def test_a_request_mode_goes_with_its_topic(tmp_path: Path) -> None:
    """Also the last one, which leaves an empty file."""
    async with kept(tmp_path, **LIFE) as opened:
        opened.broker.messages.pops.modes.put(RequestMode("T", "G", "POP"))
        write_offsets(opened)
        delete_topic(opened.broker, FakeConnection(), "T", NOW_MS)
    async with kept(tmp_path, **LIFE) as again:
        assert not again.broker.messages.pops.modes
