"""What a listener's result does to its queue (wire.md 12.7), with fakes for locks, offsets and dead letters."""

import pytest

from tests.client.dispatch.consume_service import SUSPEND, S, Service, answers
from tests.client.stage import Stage, on_stage
from tests.rows import by_row

pytestmark = pytest.mark.usefixtures("each_way")

# Automatic commit --------------------------------------------------------------------------------------------


@on_stage
async def test_success_commits_message_by_message(stage: Stage) -> None:
    """In offset order, each one's offset + 1, and the task ends when nothing is left."""
    service = Service(stage, answers(None))
    service.put(3, 4, 9)
    await service.quiet()
    assert service.handled == [3, 4, 9]
    assert service.committed(4, 5, 10)
    assert service.service._running == {}
    service.put(10)
    await service.quiet()
    assert service.offsets[-1] == 11


@on_stage
async def test_a_lower_offset_is_stored_too(stage: Stage) -> None:
    """In order the last handled message counts: after a reset the offset goes down."""
    service = Service(stage, answers(None))
    service.put(9)
    await service.quiet()
    service.put(3)
    await service.quiet()
    assert service.committed(10, 4)


@on_stage
async def test_batches(stage: Stage) -> None:
    """At most consumeMessageBatchMaxSize messages a call, one commit each."""
    service = Service(stage, answers(None), consume_message_batch_max_size=4)
    service.put(*range(10))
    await service.quiet()
    assert [offsets for offsets, _ in service.calls] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert service.committed(4, 8, 10)


@pytest.mark.parametrize("status", [S.COMMIT, S.ROLLBACK])
@on_stage
async def test_commit_and_rollback_need_manual_commit(stage: Stage, status: S) -> None:
    """With auto_commit on they count as success, and the log says so (wire.md 12.7)."""
    service = Service(stage, answers(status, None))
    service.put(0, 1)
    await service.quiet()
    assert service.committed(1, 2)
    assert stage.events("warning") == ["manual_commit_not_enabled"]


@on_stage
async def test_suspension_repeats_the_call_and_blocks_the_queue(stage: Stage) -> None:
    """The same messages come again 1000 ms later with a higher count; no later message is handled before them."""
    service = Service(stage, answers(SUSPEND, SUSPEND, None), consume_message_batch_max_size=2)
    service.put(0, 1, 2)
    await service.quiet(5000)
    assert service.calls == [([0, 1], 0), ([0, 1], 1), ([0, 1], 2), ([2], 0)]
    assert [later - earlier for earlier, later in zip(service.times, service.times[1:], strict=False)] == [
        1000,
        1000,
        0,
    ]
    assert service.committed(2, 3)


@pytest.mark.parametrize(("wanted_ms", "waited_ms"), [(-1, 1000), (0, 10), (9, 10), (500, 500), (60_000, 30_000)])
@on_stage
async def test_how_long_a_queue_is_suspended(stage: Stage, wanted_ms: int, waited_ms: int) -> None:
    """As the context says, from 10 ms to 30 s; -1 is the consumer's setting."""
    service = Service(stage, answers(SUSPEND, None, suspend_ms=wanted_ms), suspend_current_queue_time_ms=1000)
    service.put(0)
    await service.quiet(25_000)
    service.queue.hold.granted(stage.client.now_ms())
    await service.quiet(10_000)
    assert service.times[1] - service.times[0] == waited_ms


# Giving up ---------------------------------------------------------------------------------------------------


@on_stage
async def test_a_message_at_its_limit_becomes_a_dead_letter(stage: Stage) -> None:
    """maxReconsumeTimes 2: handled with 0, 1 and 2, then given up, committed, and the queue goes on."""
    service = Service(
        stage, lambda messages, _: SUSPEND if messages[0].queue_offset == 0 else None, max_reconsume_times=2
    )
    service.put(0, 1)
    await service.quiet(5000)
    assert service.calls == [([0], 0), ([0], 1), ([0], 2), ([1], 0)]
    assert service.dead == [0]
    assert service.committed(1, 2)


@on_stage
async def test_a_dead_letter_that_cannot_be_sent_stays(stage: Stage) -> None:
    """The message is tried again with a rising count, and becomes a dead letter later."""
    service = Service(stage, answers(SUSPEND), max_reconsume_times=0)
    service.dead_letters_fail = True
    service.put(0)
    await service.quiet(2500)
    assert [times for _, times in service.calls] == [0, 1, 2]
    assert service.offsets == []
    service.dead_letters_fail = False
    await service.quiet(1000)
    assert service.dead == [0]
    assert service.committed(1)


@on_stage
async def test_a_batch_of_which_a_part_is_given_up_comes_again(stage: Stage) -> None:
    """As a whole, as in RocketMQ: nothing is committed before the other messages are handled too."""
    service = Service(stage, answers(SUSPEND, None), max_reconsume_times=0, consume_message_batch_max_size=2)
    service.not_taken = [1]
    service.put(0, 1)
    await service.quiet(2500)
    assert (service.dead, service.handled, service.offsets) == ([0], [0, 1, 0, 1], [2])


@on_stage
async def test_without_a_limit_nothing_is_given_up(stage: Stage) -> None:
    """-1, the default of orderly consumption, is 2^31 - 1 attempts."""
    service = Service(stage, answers(SUSPEND, suspend_ms=10))
    service.put(0)
    await service.quiet(2000)
    assert len(service.calls) > 100
    assert service.dead == []


# Manual commit -----------------------------------------------------------------------------------------------


@on_stage
async def test_success_without_commit_keeps_messages_in_hand(stage: Stage) -> None:
    """The queue goes on and nothing is committed until COMMIT, which commits all of it."""
    service = Service(stage, answers(None, S.SUCCESS, S.COMMIT, None, auto_commit=False))
    service.put(0, 1, 2, 3)
    await service.quiet()
    assert service.handled == [0, 1, 2, 3]
    assert service.committed(3)


@on_stage
async def test_rollback_brings_back_everything_since_the_commit(stage: Stage) -> None:
    """After the suspension time, in order."""
    service = Service(stage, answers(S.COMMIT, None, S.ROLLBACK, S.COMMIT, auto_commit=False))
    service.put(0, 1, 2, 3)
    await service.quiet(3000)
    assert service.handled == [0, 1, 2, 1, 2, 3]
    assert service.times[3] - service.times[2] == 1000
    assert service.committed(1, 2, 3, 4)


@on_stage
async def test_suspend_under_manual_commit_brings_back_the_call_alone(stage: Stage) -> None:
    """Messages handled before stay uncommitted and are committed with the next COMMIT."""
    service = Service(stage, answers(None, SUSPEND, S.COMMIT, auto_commit=False))
    service.put(0, 1)
    await service.quiet(3000)
    assert service.handled == [0, 1, 1]
    assert service.committed(2)


@on_stage
async def test_given_up_under_manual_commit_commits_nothing(stage: Stage) -> None:
    """The table's last row: the queue goes on, and the listener decides when to commit."""
    service = Service(stage, answers(SUSPEND, S.COMMIT, auto_commit=False), max_reconsume_times=0)
    service.put(0, 1)
    await service.quiet(3000)
    assert service.dead == [0]
    assert service.handled == [0, 1]
    assert service.committed(2)


# Statistics --------------------------------------------------------------------------------------------------


@by_row(
    "status, auto_commit, ok, failed",
    [
        (None, True, 2, 0),
        (S.COMMIT, True, 2, 0),
        (S.ROLLBACK, True, 2, 0),
        (SUSPEND, True, 0, 2),
        (S.SUCCESS, False, 2, 0),
        (S.COMMIT, False, 0, 0),
        (S.ROLLBACK, False, 0, 0),
        (SUSPEND, False, 0, 2),
    ],
)
@on_stage
async def test_what_counts_as_consumed_and_as_failed(
    stage: Stage, status: S | None, auto_commit: bool, ok: int, failed: int
) -> None:
    """A call's time always; its messages as RocketMQ counts them: a commit or a rollback by hand is neither."""
    service = Service(stage, answers(status, auto_commit=auto_commit), consume_message_batch_max_size=2)
    service.put(0, 1)
    await service.quiet(500)
    totals = service.stats.of(service.queue.queue.topic)
    assert (totals.calls, totals.ok, totals.failed) == (1, ok, failed)
