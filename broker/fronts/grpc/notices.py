"""What the core tells clients: those of this front by their telemetry, others as before."""

from collections.abc import Callable

from lockstep.broker.fronts.grpc.sessions import Session
from lockstep.broker.fronts.grpc.translate import Delivered, to_message
from lockstep.broker.fronts.grpc.undecided import Undecided
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.broker.peer import Notices, Peer
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue

__all__ = ["BothNotices"]

_UNZIPPED_BYTES_MAX = 16 * 1024 * 1024


class BothNotices:
    """See `Notices`.

    Args:
        others: Tells the clients of the other front.
    """

    def __init__(self, others: Notices, undecided: Undecided, now_ms: Callable[[], int]) -> None:
        self._others = others
        self._undecided = undecided
        self._now_ms = now_ms

    def members_changed(self, peer: Peer, consumer_group: str) -> None:
        # A client of this front asks every few seconds which queues it reads.
        if not isinstance(peer, Session):
            self._others.members_changed(peer, consumer_group)

    def queues_free(self, peer: Peer, consumer_group: str, queues: tuple[MessageQueue, ...]) -> None:
        if not isinstance(peer, Session):
            self._others.queues_free(peer, consumer_group, queues)

    def transaction_undecided(self, peer: Peer, message: bytes) -> None:
        if not isinstance(peer, Session):
            self._others.transaction_undecided(peer, message)
            return
        stored = decode_messages(message, unzip=False)[0]
        half = HalfMessage(stored.queue_offset, stored.commit_log_offset)
        self._undecided.add(stored.topic, stored.msg_id, half, self._now_ms())
        command = pb.TelemetryCommand()
        asked = command.recover_orphaned_transaction_command
        asked.transaction_id = stored.msg_id
        delivered = Delivered(stored.topic, _UNZIPPED_BYTES_MAX, _UNZIPPED_BYTES_MAX)
        asked.message.CopyFrom(to_message(stored, delivered, "", 1))
        peer.telemetry.send(command.SerializeToString())
