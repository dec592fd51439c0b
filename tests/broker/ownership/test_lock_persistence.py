"""The table of fenced locks on the disk: what a restart brings back, and what answers wait for (docs/fencing.md)."""

import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps

import pytest

from lockstep.broker.ownership.changes import ChangeCause
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, LockRefusal
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.epochs import boot_of
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from lockstep.protocol.headers.messaging import ResetOwnOffsetRequestHeader, ResetOwnOffsetResponseHeader
from lockstep.simulation import World, simulate
from tests.broker.helpers import send_header
from tests.broker.ownership.kept_fences import LEASE_MS, QUEUES, KeptFences

TABLE = "store/config/lockTable.log"
SEEDS = range(20)


def on_simulated_disks(scenario: Callable[[World], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Under several seeds: what a power cut takes of unsynced writes is chance."""

    @wraps(scenario)
    def run() -> None:
        for seed in SEEDS:
            simulate(scenario, seed=seed)

    del run.__wrapped__
    return run


@on_simulated_disks
async def test_a_granted_lock_survives_a_power_cut(world: World) -> None:
    """With its epoch: its owner renews, another waits for one lease from the start, and later epochs are higher."""
    kept = await KeptFences.with_messages(world)
    epoch = await kept.claim("a")
    await kept.die()
    assert (await kept.lock("b", 0)).refusals == (LockRefusal(QUEUES[0], "HELD", "a", LEASE_MS),)
    assert not await kept.renews("b", epoch)
    assert not await kept.claim("a")
    assert await kept.renews("a", epoch)
    await world.sleep_ms(LEASE_MS)
    later = await kept.claim("b")
    assert later > epoch
    assert boot_of(later) > boot_of(epoch)


@on_simulated_disks
async def test_epochs_grow_although_the_wall_clock_goes_back(world: World) -> None:
    """Over several restarts, each an hour before the last one."""
    kept = await KeptFences.with_messages(world)
    epochs = [await kept.claim("a")]
    for number in range(1, 4):
        await kept.unlock("a", epochs[-1])
        world.set_clock("broker", -3_600_000 * number)
        await kept.die()
        epoch = await kept.claim("a") or await after_a_lease(kept, "a")
        epochs.append(epoch)
    assert epochs == sorted(set(epochs))
    assert [boot_of(epoch) - boot_of(epochs[0]) for epoch in epochs] == [0, 1, 2, 3]


async def after_a_lease(kept: KeptFences, name: str) -> int:
    """An unlock need not survive: then its queue is free after one lease."""
    await kept.world.sleep_ms(LEASE_MS)
    return await kept.claim(name)


@on_simulated_disks
async def test_an_unmodified_owner_renews_after_a_restart(world: World) -> None:
    """By its client id."""
    kept = await KeptFences.with_messages(world)
    assert await kept.lock("java") == LockOkBody(QUEUES[:1])
    await kept.die()
    assert await kept.lock("other") == LockOkBody(())
    assert await kept.lock("java") == LockOkBody(QUEUES[:1])


@on_simulated_disks
async def test_a_new_owner_begins_where_the_last_one_committed(world: World) -> None:
    """A power cut takes commits of the last seconds, but not the one at which the present period began."""
    kept = await KeptFences.with_messages(world, flush_sync=True)
    first = await kept.claim("a")
    assert await kept.commit("a", 6, first) == 0
    await kept.unlock("a", first)
    second = await kept.claim("b")
    assert await kept.commit("b", 9, second) == 0
    await kept.die()
    assert kept.committed == 6
    assert await kept.commit("b", 8, second) == 0
    assert await kept.commit("a", 10, first) == ResponseCode.FENCED


@on_simulated_disks
async def test_an_owner_of_a_deleted_topic_leaves_no_offset_to_the_new_one(world: World) -> None:
    """Its period was kept with the offset at which it began; the group would skip as many messages."""
    kept = await KeptFences.with_messages(world, flush_sync=True)
    first = await kept.claim("a")
    assert await kept.commit("a", 7, first) == 0
    await kept.unlock("a", first)
    assert await kept.claim("b")
    await world.sleep_ms(100)
    assert (await kept.ask("p", RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))).code == 0
    kept.broker.catalog.topics.put(TopicConfig("T", 4, 4), kept.now_ms)
    for _ in range(10):
        await kept.ask("p", RequestCode.SEND_MESSAGE_V2, send_header(), b"new")
    await kept.die()
    assert kept.broker.messages.store.max_offset("T", 0) == 10
    assert kept.committed == -1


@on_simulated_disks
async def test_an_offset_that_was_set_back_stays_back(world: World) -> None:
    """The offset of a period's begin counts only until later offsets are on the disk."""
    kept = await KeptFences.with_messages(world, flush_sync=True)
    epoch = await kept.claim("a")
    assert await kept.commit("a", 6, epoch) == 0
    await kept.unlock("a", epoch)
    await kept.claim("b")
    kept.broker.catalog.offsets.commit("G", "T", 0, 2)  # as a reset does
    await world.sleep_ms(10_000)
    await kept.die()
    assert kept.committed == 2


@on_simulated_disks
async def test_a_period_keeps_its_offset_while_offsets_cannot_be_written(world: World) -> None:
    """The file that says which periods the offsets on the disk know follows the file of offsets."""
    kept = await KeptFences.with_messages(world, flush_sync=True)
    first = await kept.claim("a")
    await world.sleep_ms(10_000)
    world.disk("broker").fail("sync", errno.EIO, path="consumerOffset")
    assert await kept.commit("a", 6, first) == 0
    await kept.unlock("a", first)
    assert await kept.claim("b")
    await world.sleep_ms(10_000)
    world.disk("broker").heal()
    await kept.die()
    assert kept.committed == 6


@on_simulated_disks
async def test_an_answer_waits_for_the_disk(world: World) -> None:
    """Also with --flush async, and in the order of the table: a renewal waits only for what is not kept yet."""
    kept = await KeptFences.with_messages(world)
    world.disk("broker").sync_ms = 50
    body = LockBatchBody("G", "a", QUEUES[:1], (0,))
    began_ms = world.elapsed_ms
    reply = kept.asked("a", RequestCode.LOCK_BATCH_MQ, None, body)
    assert reply() is None
    await world.until(lambda: reply() is not None)
    assert world.elapsed_ms - began_ms >= 50
    epoch = next(iter(kept.locks.rows(kept.now_ms))).epoch or 0
    renewed = kept.asked("a", RequestCode.LOCK_BATCH_MQ, None, body._replace(epochs=(epoch,)))
    assert renewed() is not None


@on_simulated_disks
async def test_requests_share_a_round(world: World) -> None:
    """Locks that are asked for while the disk is busy are written together, each request with one line."""
    kept = await KeptFences.with_messages(world)
    world.disk("broker").sync_ms = 50
    began_ms = world.elapsed_ms
    replies = [
        kept.asked(f"c{number}", RequestCode.LOCK_BATCH_MQ, None, LockBatchBody(f"G{number}", "c", QUEUES, (0, 0, 0)))
        for number in range(30)
    ]
    await world.until(lambda: all(reply() is not None for reply in replies))
    assert world.elapsed_ms - began_ms < 250
    assert len(kept.locks) == 90


@on_simulated_disks
async def test_a_lock_that_cannot_be_kept_is_not_granted(world: World) -> None:
    """The client gets the reason, the queue is free again, and the next claim after the disk has recovered succeeds."""
    kept = await KeptFences.with_messages(world)
    world.disk("broker").fail("sync", errno.EIO, path="lockTable")
    reply = await kept.ask("a", RequestCode.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", QUEUES[:1], (0,)))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "lockTable.log cannot be written" in (reply.remark or "")
    assert (len(kept.locks), kept.locks.changes[ChangeCause.WITHDRAWN]) == (0, 1)
    world.disk("broker").heal()
    await world.sleep_ms(1000)
    epoch = await kept.claim("b")
    assert epoch
    await kept.die()
    assert await kept.renews("b", epoch)


@on_simulated_disks
async def test_a_failed_write_loses_no_other_change(world: World) -> None:
    """An unlock that was in it is on the disk when the disk has recovered."""
    kept = await KeptFences.with_messages(world)
    await kept.unlock("a", await kept.claim("a"))
    world.disk("broker").fail("sync", errno.EIO, path="lockTable")
    kept.broker.scan(kept.now_ms)
    await world.sleep_ms(1000)
    world.disk("broker").heal()
    await world.sleep_ms(1000)
    await kept.die()
    assert await kept.claim("b")


@on_simulated_disks
async def test_a_renewal_writes_nothing(world: World) -> None:
    """Only changes of owners do."""
    kept = await KeptFences.with_messages(world)
    epoch = await kept.claim("a")
    before = world.disk("broker").read(TABLE)
    await kept.renews("a", epoch)
    assert world.disk("broker").read(TABLE) == before


@on_simulated_disks
async def test_an_unlock_is_written_soon(world: World) -> None:
    """Within 10 s, so that after a later restart nobody waits for a lease."""
    kept = await KeptFences.with_messages(world)
    epoch = await kept.claim("a")
    await kept.unlock("a", epoch)
    kept.broker.scan(kept.now_ms)
    await world.sleep_ms(100)
    await kept.die()
    assert await kept.claim("b")


@on_simulated_disks
async def test_a_clean_stop_keeps_owners_too(world: World) -> None:
    """As a kill does."""
    kept = await KeptFences.with_messages(world)
    epoch = await kept.claim("a")
    await kept.stop()
    await kept.start()
    assert not await kept.claim("b")
    assert await kept.renews("a", epoch)


@on_simulated_disks
async def test_a_longer_lease_of_now_counts(world: World) -> None:
    """A lock that was renewed for longer than it was granted for is kept with the longer lease at the next start."""
    kept = await KeptFences.with_messages(world, lock_max_live_time_ms=40_000)
    epoch = await kept.claim("a")
    for lease_ms in (90_000, 50_000):
        kept.config = replace(kept.config, lock_max_live_time_ms=lease_ms)
        await kept.die()
    assert (await kept.lock("b", 0)).refusals == (LockRefusal(QUEUES[0], "HELD", "a", 90_000),)
    assert await kept.renews("a", epoch)


# A table that is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["missing", "damaged", "unreadable"])
def test_a_lost_table_begins_a_grace_period(loss: str) -> None:
    """The first who presents an epoch has the queue; claims wait; a damaged file is kept aside and named."""

    async def scenario(world: World) -> None:
        kept = await KeptFences.with_messages(world)
        epoch = await kept.claim("a")
        await kept.stop()
        storage = kept.runtime.storage
        if loss == "missing":
            storage.delete(TABLE)
        elif loss == "damaged":
            storage.open_file(TABLE).write_at(20, b"?")
        else:
            world.disk("broker").fail("read_file", errno.EIO, path="lockTable")
        await kept.start()
        world.disk("broker").heal()
        assert kept.events("lock_grace_begun") == [{"grace_ms": LEASE_MS}]
        logged = [event for event in kept.log.names() if event.startswith("lock_table")]
        assert (
            logged == {"missing": [], "damaged": ["lock_table_damaged"], "unreadable": ["lock_table_unreadable"]}[loss]
        )
        if loss == "damaged":
            assert kept.events("lock_table_damaged")[0]["file"] == TABLE + ".damaged"
            assert storage.read_file(TABLE + ".damaged")
        assert (await kept.lock("b", 0)).refusals == (LockRefusal(QUEUES[0], "HELD", "", LEASE_MS),)
        assert await kept.renews("a", epoch)
        assert not await kept.renews("z", epoch + 1)
        await kept.die()
        assert await kept.renews("a", epoch), "what was reclaimed is kept"
        assert not (await kept.lock("b", 1, 0)).lock_ok_mq_set, "the grace period lasts after another restart"
        await world.sleep_ms(LEASE_MS)
        kept.locks.due(kept.now_ms)
        kept.broker.scan(kept.now_ms)
        await world.sleep_ms(100)
        assert await kept.claim("b") > epoch
        before = len(kept.events("lock_grace_begun"))
        await kept.die()
        assert len(kept.events("lock_grace_begun")) == before

    simulate(scenario)


def test_an_empty_folder_needs_no_grace() -> None:
    """Nobody has consumed anything yet; nor does one with `lock_grace_ms` 0."""

    async def scenario(world: World) -> None:
        kept = KeptFences(world)
        await kept.start()
        assert await kept.claim("a")
        other = await KeptFences.with_messages(world, data_dir="other", lock_grace_ms=0)
        await other.stop()
        other.runtime.storage.delete("other/config/lockTable.log")
        await other.start()
        assert await other.claim("a")

    simulate(scenario)


def test_a_long_file_is_written_anew() -> None:
    """It does not grow with the number of handovers."""

    async def scenario(world: World) -> None:
        kept = await KeptFences.with_messages(world)
        longest = 0
        for number in range(1200):
            body = LockBatchBody(f"{number % 10}" * 200, "c" * 512, QUEUES, (0, 0, 0))
            await kept.ask("c", RequestCode.LOCK_BATCH_MQ, None, body)
            for row in tuple(kept.locks.rows(kept.now_ms)):
                kept.locks.unlock_batch(row.consumer_group, row.client_id, [row.queue], [row.epoch or 0], kept.now_ms)
            longest = max(longest, len(world.disk("broker").read(TABLE)))
        assert 1024 * 1024 < longest < 1040 * 1024
        epoch = await kept.claim("a")
        await kept.die()
        assert await kept.renews("a", epoch)

    simulate(scenario)


@on_simulated_disks
async def test_a_reset_of_the_owner_is_kept(world: World) -> None:
    """With its new epoch and its offset, which is lower than the one in the file of offsets."""
    kept = await KeptFences.with_messages(world, flush_sync=True)
    epoch = await kept.claim("a")
    assert await kept.commit("a", 9, epoch) == 0
    await world.sleep_ms(10_000)
    header = ResetOwnOffsetRequestHeader("G", "T", 0, 4, epoch, "a")
    reply = await kept.ask("a", RequestCode.RESET_OWN_OFFSET, header)
    later = reply.decode_header(ResetOwnOffsetResponseHeader).lock_epoch
    await kept.die()
    assert kept.committed == 4
    assert await kept.renews("a", later)
    assert not await kept.renews("a", epoch)
