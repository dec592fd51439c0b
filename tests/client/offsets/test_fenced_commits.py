"""FencedCommits: commits that leave in several frames, and their answers (docs/wire.md 17.2)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.consumer.ownership.fenced_commits import FencedCommits
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.epochs import make_epoch
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import COMMITS_MAX, Commit, decode_commits, encode_rows
from lockstep.remoting.errors import RemotingError, RequestRefused
from tests.client.periods import fenced

FENCED, OK = ResponseCode.FENCED, ResponseCode.SUCCESS
COUNT = 2 * COMMITS_MAX + 3
REFUSED = {0, COMMITS_MAX - 1, COMMITS_MAX, COUNT - 1}  # the first and the last of frames


class World:
    """Commits without a network: `frames` has what was sent, with the callbacks of the answers."""

    def __init__(self, count: int) -> None:
        self.frames: list[tuple[RemotingCommand, Callable[[RemotingCommand | RemotingError], None]]] = []
        self.recorded: list[tuple[int, int]] = []  # queue ids and offsets of commits that brokers took
        self.refused: list[tuple[int, str | None]] = []  # queue ids with the remark
        self.log = Mock()
        self.endpoint = endpoint = Mock(together=True, agreed=True, request_then=self._request_then)
        instance = SimpleNamespace(
            client_id="c1",
            routes=SimpleNamespace(master_address=lambda name: name),
            address_of=lambda name: name,
            dialer=SimpleNamespace(open_endpoint=lambda address: endpoint, endpoint=AsyncMock(return_value=endpoint)),
        )
        member = SimpleNamespace(
            instance=instance,
            group="g",
            config=ConsumerConfig(),
            runtime=SimpleNamespace(monotonic_ns=lambda: 7),
            offsets=SimpleNamespace(in_memory=self.offset_of, commits=0),
            record=self._record,
            log=self.log,
        )
        self.process_queues = [self._owned(number) for number in range(count)]
        self.commits = FencedCommits(cast("Any", member), self._refused)

    @staticmethod
    def offset_of(queue: MessageQueue) -> int:
        return queue.queue_id * 10

    @staticmethod
    def _owned(number: int) -> ProcessQueue:
        return fenced(MessageQueue("T", "broker-a", number), 0, make_epoch(1_700_000_000_000, number + 1), 60_000)

    def _request_then(self, frame: RemotingCommand, timeout_ms: int, then: Callable[..., None]) -> None:
        self.frames.append((frame, then))

    def _record(self, kind: str, process_queue: ProcessQueue, *, offset: int, begin_mono_ns: int) -> None:
        assert (kind, begin_mono_ns) == ("committed", 7)
        self.recorded.append((process_queue.queue.queue_id, offset))

    def _refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        assert isinstance(error, RequestRefused)
        self.refused.append((process_queue.queue.queue_id, error.remark))
        return True


def commits_of(frame: RemotingCommand) -> list[Commit]:
    header = frame.decode_header(CommitTogetherRequestHeader)
    assert (header.consumer_group, header.lock_client_id) == ("g", "c1")
    return list(decode_commits(frame.body, header.commit_count))


def answer(frame: RemotingCommand) -> RemotingCommand:
    """Each commit is taken, but those of `REFUSED`; a remark names its queue."""
    refused = [commit.queue_id for commit in commits_of(frame) if commit.queue_id in REFUSED]
    rows = [(FENCED if commit.queue_id in REFUSED else OK, 0, 0) for commit in commits_of(frame)]
    return frame.reply(OK, body=encode_rows(rows, [f"queue {queue_id}" for queue_id in refused]))


@pytest.mark.parametrize("backwards", [False, True])
def test_every_answer_of_a_split_frame_is_for_its_own_queue(backwards: bool) -> None:
    """Three frames for 2,003 queues, answered in any order: no commit is missing, doubled or taken for another's."""
    world = World(COUNT)
    world.commits.send(world.process_queues)
    sent = [commits_of(frame) for frame, _ in world.frames]
    assert [len(commits) for commits in sent] == [COMMITS_MAX, COMMITS_MAX, 3]
    assert [commit for commits in sent for commit in commits] == [
        Commit("T", number, number * 10, owned.hold.epoch) for number, owned in enumerate(world.process_queues)
    ]
    for frame, then in reversed(world.frames) if backwards else world.frames:
        then(answer(frame))
    assert sorted(world.recorded) == [(number, number * 10) for number in range(COUNT) if number not in REFUSED]
    assert sorted(world.refused) == [(number, f"queue {number}") for number in sorted(REFUSED)]


def test_a_frame_that_is_refused_or_lost_says_nothing_of_the_others() -> None:
    """One is refused as a whole, one has no answer, one an unreadable answer: the fourth one's commits are taken."""
    world = World(3 * COMMITS_MAX + 1)
    world.commits.send(world.process_queues)
    (refused, first), (_, second), (odd, third), (taken, fourth) = world.frames
    first(refused.reply(ResponseCode.SYSTEM_ERROR, remark="no"))
    second(RemotingError("the connection is closed"))
    third(odd.reply(OK, body=b"x"))
    fourth(answer(taken))
    assert world.refused == [(number, "no") for number in range(COMMITS_MAX)]
    assert world.recorded == [(3 * COMMITS_MAX, 30 * COMMITS_MAX)]
    assert world.log.warning.call_args.kwargs["queue"] == str(world.process_queues[2 * COMMITS_MAX].queue)


@pytest.mark.parametrize("end", ["lost", "dropped"])
def test_a_commit_that_is_answered_after_the_end_of_its_period_is_not_recorded(end: str) -> None:
    """The answer may be older than commits of the next owner."""
    world = World(2)
    world.commits.send(world.process_queues)
    [(frame, then)] = world.frames
    setattr(world.process_queues[0].life, end, True)
    then(frame.reply(OK, body=encode_rows([(OK, 0, 0)] * 2, [])))
    assert world.recorded == [(1, 10)]


async def test_a_broker_without_fenced_locks_gets_no_commit_of_a_fenced_period() -> None:
    """It would take the offset whoever owns the queue: neither in a round nor as the last one."""
    world = World(1)
    world.endpoint.agreed = False
    world.commits.send(world.process_queues)
    await world.commits.store_last(world.process_queues[0])
    assert (world.frames, world.endpoint.request.called, world.recorded) == ([], False, [])
    assert "no fenced locks any more" in world.log.warning.call_args.kwargs["error"]
