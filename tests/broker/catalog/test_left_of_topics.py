"""What waits for a deleted topic, and its groups' offsets: a new topic of that name gets none of it."""

from pathlib import Path

import pytest

from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.core.transaction import check_transactions
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import ResumeCheckHalfMessageRequestHeader
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.names import HALF_TOPIC
from tests.broker.catalog.made_again import NEW, copied, copy, create, delayed, delete, max_offsets, put, send_half
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until

# Offsets ------------------------------------------------------------------------------------------------------------


async def test_groups_have_no_offset_of_a_topic_that_was_made_again(tmp_path: Path) -> None:
    """With the old one a group would skip as many messages of the new topic. Other topics keep theirs."""
    async with kept(tmp_path) as opened:
        create(opened)
        offsets = opened.broker.catalog.offsets
        offsets.commit("g", NEW, 0, 5)
        offsets.commit("g", "T", 0, 3)
        delete(opened)
        assert (offsets.query("g", NEW, 0), offsets.query("g", "T", 0)) == (-1, 3)
        assert (offsets.groups_of(NEW), offsets.topics_of("g"), len(offsets)) == ([], ["T"], 1)
    async with kept(tmp_path) as again:
        create(again)
        assert again.broker.catalog.offsets.queues_of("g", NEW) == {}
        assert again.broker.catalog.offsets.queues_of("g", "T") == {0: 3}


def test_many_groups_lose_their_offsets_in_steps_and_at_once() -> None:
    """No group finds one before the last step, and what a group commits meanwhile for a new topic stays."""
    offsets = ConsumerOffsetManager()
    groups = [f"g{number}" for number in range(2000)]
    for group in groups:
        offsets.commit(group, NEW, 0, 7)
    offsets.commit("g0", "T", 0, 1)
    steps = offsets.forget_topic(NEW)
    assert {offsets.query(group, NEW, 0) for group in groups[:10]} == {-1}
    assert offsets.groups_of(NEW) == []
    assert set(offsets.all()) == {("T", "g0")}
    offsets.commit("g1999", NEW, 1, 2)
    offsets.remove_group("g1000")
    step_count = sum(1 for _ in steps)
    assert step_count >= 2
    assert offsets.all() == {("T", "g0"): {0: 1}, (NEW, "g1999"): {1: 2}}
    assert len(offsets) == 2
    assert offsets.groups_of(NEW) == ["g1999"]


async def test_offsets_that_a_crash_brings_back_are_not_those_of_the_new_topic(tmp_path: Path) -> None:
    """The file of offsets is older than the new topic. It has more messages than the old one had."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened)
        put(opened, b"old")
        opened.broker.catalog.offsets.commit("g", NEW, 0, 1)
        path = folder / "config" / "consumerOffset.json"
        await until(lambda: path.exists() and NEW in path.read_text(), "the offset is written")
        await opened.writers.flush()
        before = path.read_bytes()
        delete(opened)
        create(opened)
        for made_again in (False, True):
            if made_again:
                put(opened, b"new", b"newer")
            await opened.writers.flush()
            crashed = tmp_path / f"crashed-{made_again}"
            copy(folder, crashed)
            (crashed / "abort").touch()
            (crashed / "config" / path.name).write_bytes(before)
            async with kept(crashed) as again:
                assert max_offsets(again) == [2 * made_again, 0]
                assert again.broker.catalog.offsets.query("g", NEW, 0) == -1
        opened.broker.catalog.offsets.commit("g", NEW, 0, 2)
        await until(lambda: f'"{NEW}@g":{{"0":2' in path.read_text().replace(" ", ""), "the new offset is written")
        async with copied(folder, tmp_path / "later") as later:
            assert later.broker.catalog.offsets.query("g", NEW, 0) == 2


# Delayed messages and transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("restart", [True, False])
async def test_delayed_messages_for_a_deleted_topic_are_not_delivered(
    tmp_path: Path, again: bool, restart: bool
) -> None:
    """Those of other topics behind them are, and so are those that were sent to the new topic."""
    async with kept(tmp_path) as opened:
        create(opened)
        delayed(opened, b"old")
        delayed(opened, b"kept", "T")
        delete(opened)
        if again:
            create(opened)
            delayed(opened, b"new")
        await opened.writers.flush()
        if not restart:
            await deliver(opened, again)
    if restart:
        (tmp_path / "abort").touch()
        async with kept(tmp_path) as restarted:
            await deliver(restarted, again)


async def deliver(opened: Kept, again: bool) -> None:
    opened.broker.messages.deliver_delayed(NOW_MS + 10_000)
    await opened.writers.flush()
    assert opened.log.names("info").count("delayed_message_of_deleted_topic") == 1
    assert max_offsets(opened) == [int(again), 0]
    assert opened.store.max_offset("T", 0) == 1


async def test_delayed_messages_that_were_delivered_before_a_kill_stay_so(tmp_path: Path) -> None:
    """A waiting message of a deleted topic before them does not hide that."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened)
        delayed(opened, b"old")
        delayed(opened, b"kept", "T")
        await opened.writers.flush()
        path = folder / "config" / "delayOffset.json"
        await until(path.exists, "the offsets of delays are written")
        before = path.read_bytes()
        delete(opened)
        opened.broker.messages.deliver_delayed(NOW_MS + 10_000)
        await opened.writers.flush()
        copy(folder, tmp_path / "crashed")
    crashed = tmp_path / "crashed"
    (crashed / "abort").touch()
    (crashed / "config" / path.name).write_bytes(before)
    async with kept(crashed) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 10_000)
        assert again.store.max_offset("T", 0) == 1


async def test_a_flood_of_delayed_messages_for_a_deleted_topic_is_passed_over_in_pieces(tmp_path: Path) -> None:
    """One call looks at a bounded number of them, and is due again at once."""
    async with kept(tmp_path, flush_sync=False) as opened:
        create(opened)
        for _ in range(600):
            delayed(opened, b"old")
        delete(opened)
        opened.broker.messages.deliver_delayed(NOW_MS + 10_000)
        assert opened.log.names("info").count("delayed_message_of_deleted_topic") == 500
        assert (opened.broker.messages.delays.next_due_ms or 0) <= NOW_MS + 10_000
        opened.broker.messages.deliver_delayed(NOW_MS + 10_000)
        assert opened.broker.messages.delays.next_due_ms is None


@pytest.mark.parametrize("again", [True, False])
async def test_a_half_message_is_not_committed_to_a_deleted_topic(tmp_path: Path, again: bool) -> None:
    """It ends, so that nobody is asked about it any more, also after a restart."""
    async with kept(tmp_path) as opened:
        create(opened)
        header = await send_half(opened)
        delete(opened)
        if again:
            create(opened)
        opened.ask(RequestCode.END_TRANSACTION, header)
        await opened.writers.flush()
        assert "half_message_of_deleted_topic" in opened.log.names("info")
        assert (max_offsets(opened), len(opened.broker.messages.halves)) == ([0, 0], 0)
        message_id = encode_offset_message_id(opened.store.store_host, 10911, header.commit_log_offset)
        resumed = opened.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(message_id))
        assert resumed is not None
        assert resumed.code == ResponseCode.TOPIC_NOT_EXIST
    async with kept(tmp_path) as restarted:
        assert len(restarted.broker.messages.halves) == 0


async def test_no_producer_is_asked_about_a_half_message_of_a_deleted_topic(tmp_path: Path) -> None:
    """A check would store it again, behind the place where the new topic begins."""
    async with kept(tmp_path) as opened:
        create(opened)
        await send_half(opened)
        delete(opened)
        create(opened)
        count = opened.store.max_offset(HALF_TOPIC, 0)
        check_transactions(opened.broker, NOW_MS + 120_000)
        assert (opened.store.max_offset(HALF_TOPIC, 0), len(opened.broker.messages.halves)) == (count, 0)
