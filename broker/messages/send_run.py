"""Sends of one read, which are stored with one append at its end, before their answers leave.

A client with many sends in flight writes them one behind the other, so one read brings many. Each is checked in its
turn; its record waits here, and its answer has no header yet. Whatever else stores a message or answers a request calls
`store` first. So messages and answers are those of sends that are stored one by one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.protocol.command import RemotingCommand
from lockstep.store import AppendResult, Record

__all__ = ["SendRun", "WaitingSend"]

# One read of a socket; a longer frame comes alone.
_BODY_BYTES_MAX: Final = 256 * 1024

WaitingSend = tuple[Connection, RemotingCommand, RemotingCommand]  # a request and its answer


class SendRun:
    """The sends that wait. `waiting`: their messages.

    Args:
        put_all: Stores messages, all or none.
        put: Stores one message.
        log_end: The end of the commit log.
        complete: Puts the place of a message into its answer.
        refuse: Puts the reason why a message is not stored into its answer.
    """

    def __init__(
        self,
        put_all: Callable[[Sequence[Record]], list[AppendResult]],
        put: Callable[[Record], AppendResult],
        log_end: Callable[[], int],
        complete: Callable[[RemotingCommand, Record, AppendResult], None],
        refuse: Callable[[WaitingSend, Record, Exception], None],
    ) -> None:
        self._put_all = put_all
        self._put = put
        self._log_end = log_end
        self._complete = complete
        self._refuse = refuse
        self.waiting: list[Record] = []
        self._sends: list[WaitingSend] = []
        self._body_bytes = 0

    def add(self, record: Record, connection: Connection, command: RemotingCommand, reply: RemotingCommand) -> None:
        """Let a send wait. Its answer gets a header, or the reason of a refusal, from `store`."""
        self.waiting.append(record)
        self._sends.append((connection, command, reply))
        self._body_bytes += len(command.body)
        if self._body_bytes > _BODY_BYTES_MAX:
            self.store()

    def store(self) -> None:
        """Store what waits, in the order in which it came. What the store does not take is refused by itself.

        When it fails after the log has grown, all are refused: some may be stored, and none is stored twice.
        """
        records, sends = self.waiting, self._sends
        if not records:
            return
        self.waiting = []
        self._sends = []
        self._body_bytes = 0
        if len(records) > 1:
            log_end = self._log_end()
            try:
                stored = self._put_all(records)
            except Exception as error:
                if self._log_end() != log_end:
                    for record, send in zip(records, sends, strict=True):
                        self._refuse(send, record, error)
                    return
            else:
                complete = self._complete
                for record, (_, _, reply), result in zip(records, sends, stored, strict=True):
                    complete(reply, record, result)
                return
        for record, send in zip(records, sends, strict=True):
            try:
                result = self._put(record)
            except Exception as error:
                self._refuse(send, record, error)
            else:
                self._complete(send[2], record, result)
