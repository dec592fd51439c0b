"""FencedCommits: stores offsets under the epoch of a fenced lock, and takes notice of each answer (docs/fencing.md)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from lockstep.client.consumer.offsets.store import commit_frames
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import ClientError
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import Commit, decode_rows
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import ConnectFailed, RemotingError, RequestRefused, must_succeed

__all__ = ["FencedCommits"]

_CODE: Final = RequestCode.UPDATE_CONSUMER_OFFSET
_LAST_ATTEMPTS: Final = 2
_Sent = tuple[ProcessQueue, int]  # with the offset


class FencedCommits:
    """The commits of one consumer. Unlike those without a fence they want an answer.

    Args:
        refused: called with a process queue and the error of its commit; returns whether that ends its period.
    """

    def __init__(self, member: Membership, refused: Callable[[ProcessQueue, Exception], bool]) -> None:
        self._member = member
        self._instance = member.instance
        self._refused = refused

    def send(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Send the offsets of handled messages. A broker without a connection is skipped until the next round."""
        together: dict[Endpoint, list[_Sent]] = {}
        for process_queue in process_queues:
            queue = process_queue.queue
            offset = self._member.offsets.in_memory(queue)
            address = self._instance.routes.master_address(queue.broker_name)
            endpoint = self._instance.dialer.open_endpoint(address) if address else None
            if offset >= 0 and endpoint is not None and endpoint.agreed:
                together.setdefault(endpoint, []).append((process_queue, offset))
        sent_ns, timeout_ms = self._member.runtime.monotonic_ns(), self._member.config.request_timeout_ms
        for endpoint, sent in together.items():
            if len(sent) > 1 and endpoint.together and self._member.config.commit_together:
                self._send_together(endpoint, sent, sent_ns)
                continue
            for process_queue, offset in sent:
                answered = partial(self._answered, process_queue, offset, sent_ns)
                endpoint.request_then(self._command(process_queue, offset), timeout_ms, answered)

    def _send_together(self, endpoint: Endpoint, sent: list[_Sent], sent_ns: int) -> None:
        commits = [Commit(one.queue.topic, one.queue.queue_id, offset, one.hold.epoch) for one, offset in sent]
        for frame in commit_frames(self._member.group, commits, self._instance.client_id):
            count = frame.decode_header(CommitTogetherRequestHeader).commit_count
            answered = partial(self._all_answered, sent[:count], sent_ns)
            sent = sent[count:]
            endpoint.request_then(frame, self._member.config.request_timeout_ms, answered)

    def _all_answered(self, sent: list[_Sent], sent_ns: int, reply: RemotingCommand | RemotingError) -> None:
        if not isinstance(reply, RemotingCommand):
            return  # the next round sends them again
        codes, remarks = [reply.code] * len(sent), [reply.remark or ""] * len(sent)
        if reply.code == ResponseCode.SUCCESS:
            try:
                rows, remarks = decode_rows(reply.body, len(sent))
            except BodyError as error:
                self._member.log.warning("offset_not_stored", queue=str(sent[0][0].queue), error=str(error))
                return
            codes = [row.code for row in rows]
        left = iter(remarks)
        for (process_queue, offset), code in zip(sent, codes, strict=True):
            remark = next(left) if code else None
            self._answered(process_queue, offset, sent_ns, RemotingCommand(code, remark=remark))

    async def store_last(self, process_queue: ProcessQueue) -> None:
        """Store the offset of handled messages and wait for the answer: the next owner begins there."""
        queue = process_queue.queue
        offset = self._member.offsets.in_memory(queue)
        for attempt in range(_LAST_ATTEMPTS if offset >= 0 else 0):
            try:
                await self._store(process_queue, offset)
            except RequestRefused as error:
                self._refused(process_queue, error)
                self._log(process_queue, error)
                return
            except (RemotingError, ClientError) as error:
                if attempt + 1 == _LAST_ATTEMPTS:
                    self._log(process_queue, error)
            else:
                return

    async def _store(self, process_queue: ProcessQueue, offset: int) -> None:
        """Raises RequestRefused for any code but SUCCESS; RemotingError, NoRouteError."""
        endpoint, sent_ns = await self._endpoint(process_queue), self._member.runtime.monotonic_ns()
        reply = await endpoint.request(self._command(process_queue, offset), self._member.config.request_timeout_ms)
        must_succeed(reply, endpoint.address, _CODE)
        self._record(process_queue, offset, sent_ns)

    def _record(self, process_queue: ProcessQueue, offset: int, sent_ns: int) -> None:
        """Record a commit that the broker took.

        Not before it is sent: the broker may have given the queue away without this client's knowledge. And not when
        the lock is lost meanwhile: the answer may be older than commits of the next owner.
        """
        if not (process_queue.life.lost or process_queue.life.dropped):
            self._member.offsets.commits += 1
            self._member.record("committed", process_queue, offset=offset, begin_mono_ns=sent_ns)

    async def _endpoint(self, process_queue: ProcessQueue) -> Endpoint:
        address = self._instance.address_of(process_queue.queue.broker_name)
        endpoint = await self._instance.dialer.endpoint(address)
        if not endpoint.agreed:
            raise ConnectFailed(address, "the broker has no fenced locks any more")
        return endpoint

    def _command(self, process_queue: ProcessQueue, offset: int) -> RemotingCommand:
        queue, epoch = process_queue.queue, process_queue.hold.epoch
        header = UpdateConsumerOffsetRequestHeader(
            self._member.group, queue.topic, queue.queue_id, offset, epoch, self._instance.client_id
        )
        return RemotingCommand(_CODE, header)

    def _answered(
        self, process_queue: ProcessQueue, offset: int, sent_ns: int, reply: RemotingCommand | RemotingError
    ) -> None:
        if not isinstance(reply, RemotingCommand):
            return  # the next round sends it again
        if reply.code == ResponseCode.SUCCESS:
            try:
                self._record(process_queue, offset, sent_ns)
            except OSError as failure:
                # No caller is left to hear of it.
                self._member.log.error("trace_not_written", error=str(failure))
        else:
            broker_name = process_queue.queue.broker_name
            error = RequestRefused(broker_name, request_name(_CODE), reply.code, reply.remark)
            if not self._refused(process_queue, error):
                self._log(process_queue, error)

    def _log(self, process_queue: ProcessQueue, error: Exception) -> None:
        self._member.log.warning("offset_not_stored", queue=str(process_queue.queue), error=str(error))
