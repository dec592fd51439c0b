"""The requests of a recorded Java client get the answers from our broker that Apache's gave (tests/vectors)."""

import json
from collections.abc import Iterator
from pathlib import Path

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pull import sweep_held_pulls, wake_held_pulls
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from tests.broker.helpers import NOW_MS, FakeConnection, Peer

STORY = Path(__file__).parents[2] / "vectors" / "java-4.9.8-ordered.jsonl"


def frames() -> Iterator[tuple[str, bool, RemotingCommand]]:
    """(connection, whether the client sent it, command) of the frames between client and broker."""
    for line in STORY.read_text().splitlines():
        row = json.loads(line)
        if row["link"].startswith("BR#"):
            decoder = FrameDecoder()
            decoder.feed(bytes.fromhex(row["hex"]))
            frame = decoder.next_frame()
            assert frame is not None
            yield row["link"], row["dir"] == ">", decode_command(frame)


class Replay:
    """Our broker under the recorded requests. What Apache delivered after its delay is due when it showed there."""

    def __init__(self) -> None:
        peer = Peer()
        peer.answer(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("TopicO", "TBW102", 2, 2, 6))
        self.broker: Broker = peer.broker
        self._peers: dict[str, Peer] = {}
        self._asked: dict[tuple[str, int], tuple[RemotingCommand, RemotingCommand | None]] = {}

    def peer(self, link: str) -> Peer:
        return self._peers.setdefault(link, Peer(broker=self.broker, connection=FakeConnection()))

    def ask(self, link: str, command: RemotingCommand) -> None:
        fields = {name: getattr(command, name) for name in ("ext_fields", "opaque", "flag", "version")}
        self._asked[link, command.opaque] = (command, self.peer(link).call(command.code, None, command.body, **fields))

    def compare(self, link: str, recorded: RemotingCommand) -> None:
        """Is our answer the recorded one, in code and names of fields?"""
        request, answer = self._asked.pop((link, recorded.opaque))
        answer = answer or self._late_answer(link, recorded)
        assert answer.code == recorded.code, (request, answer, recorded)
        assert set(answer.ext_fields or ()) == set(recorded.ext_fields or ()), (request, answer, recorded)

    def _late_answer(self, link: str, recorded: RemotingCommand) -> RemotingCommand:
        """Of a pull that was parked: a message came meanwhile, or its time has passed."""
        replies = self.peer(link).connection.replies
        if recorded.opaque not in [late.opaque for late in replies]:
            if recorded.code == ResponseCode.SUCCESS:
                due_ms = self.broker.messages.delays.next_due_ms
                assert due_ms is not None
                self.broker.messages.deliver_delayed(due_ms)
                wake_held_pulls(self.broker, due_ms)
            else:
                sweep_held_pulls(self.broker, NOW_MS + 20_000)
        (answer,) = [late for late in replies if late.opaque == recorded.opaque]
        return answer


def test_a_java_clients_ordered_story_is_answered_as_apache_answered_it() -> None:
    """Every reply of the recording, in its order; notices go to the same connections."""
    replay, compared = Replay(), 0
    for link, from_client, command in frames():
        if from_client and not command.is_reply:
            replay.ask(link, command)
        elif not from_client and command.is_reply:
            replay.compare(link, command)
            compared += 1
        elif not from_client:
            notice = replay.peer(link).connection.pushed.pop(0)
            assert notice.code == command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert compared > 40
