"""A request about a queue as it arrives at a broker: who asks, under which epoch."""

from typing import Any, Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import (
    PullMessageRequestHeader,
    ResetOwnOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import NO_EPOCH, decode_commits
from lockstep.remoting.connections.endpoint import Endpoint

__all__ = ["Asked", "read_asked", "read_commits"]

_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    RequestCode.PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: SendMessageBackRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,  # a dead letter has an epoch
    RequestCode.RESET_OWN_OFFSET: ResetOwnOffsetRequestHeader,
}


class Asked(NamedTuple):
    """Args:
    address: of the asker's host.
    epoch: None: the request has none.
    lock: the body of a lock or unlock request.
    """

    code: int
    address: str
    endpoint: Endpoint
    handled_ms: int
    epoch: int | None = None
    queue: MessageQueue | None = None
    lock: LockBatchBody | None = None

    @property
    def told(self) -> str:
        """For a finding: a world's trace has this text, so it is the same in every process."""
        epoch = "" if self.epoch is None else f", epoch {self.epoch}"
        return f"{RequestCode(self.code).name} of {self.address}{epoch}"


def read_asked(endpoint: Endpoint, command: RemotingCommand, broker: str, now_ms: int) -> Asked | None:
    """None for a request that no lock concerns."""
    address, code = endpoint.address.rpartition(":")[0], command.code
    if code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        body = decode_body(LockBatchBody, command.body, command.serialize_type)
        return Asked(code, address, endpoint, now_ms, lock=body)
    if code not in _HEADERS:
        return None
    header: Any = command.decode_header(_HEADERS[code])
    if code not in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        queue = MessageQueue(header.topic, broker, header.queue_id)
    elif header.lock_epoch is not None and header.lock_topic is not None:
        queue = MessageQueue(header.lock_topic, broker, header.lock_queue_id)
    else:
        return None
    return Asked(code, address, endpoint, now_ms, header.lock_epoch, queue)


def read_commits(endpoint: Endpoint, command: RemotingCommand, broker: str, now_ms: int) -> dict[MessageQueue, Asked]:
    """The commits of one frame, each as if it had come by itself; empty for another request."""
    if command.code != RequestCode.COMMIT_TOGETHER:
        return {}
    address, code = endpoint.address.rpartition(":")[0], RequestCode.UPDATE_CONSUMER_OFFSET
    count = command.decode_header(CommitTogetherRequestHeader).commit_count
    commits = decode_commits(command.body, count)
    queues = [MessageQueue(commit.topic, broker, commit.queue_id) for commit in commits]
    return {
        queue: Asked(code, address, endpoint, now_ms, None if commit.epoch == NO_EPOCH else commit.epoch, queue)
        for queue, commit in zip(queues, commits, strict=True)
    }
