"""Where the answers of a broker leave: each after what its handler says, at once if there is nothing to wait for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting import send, send_together
from lockstep.broker.fronts.remoting.after import After, Begun, What
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, dispatch
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from lockstep.broker.persistence.disk_writers import DiskWriters

__all__ = ["Answers"]

_LOG: Final = What.LOG
OnDone = Callable[[str], None]  # gets "" when it is done, else the reason why it is not


def _as_error(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> RemotingCommand:
    if reply.code != ResponseCode.SUCCESS:
        return reply
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=reason)


def _as_timeout(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> RemotingCommand:
    reply.code, reply.remark = ResponseCode.FLUSH_DISK_TIMEOUT, reason
    return reply


def _as_it_is(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> RemotingCommand:
    return reply


# What becomes of an answer when what it waits for fails; of others: SYSTEM_ERROR. The message may be read later, so a
# send is not refused. An answer to a message is stored beside its delivery.
_WHEN_FAILED: Final[Mapping[int, Callable[[Broker, RemotingCommand, RemotingCommand, str], RemotingCommand]]] = {
    RequestCode.SEND_MESSAGE: send.as_unsafe,
    RequestCode.SEND_MESSAGE_V2: send.as_unsafe,
    RequestCode.SEND_BATCH_MESSAGE: send.as_unsafe,
    RequestCode.SEND_TOGETHER: send_together.as_unsafe,
    RequestCode.END_TRANSACTION: _as_timeout,
    RequestCode.SEND_REPLY_MESSAGE: _as_it_is,
    RequestCode.SEND_REPLY_MESSAGE_V2: _as_it_is,
}


class Answers:
    """Answers the requests of a broker. `writers`: None for a broker in memory."""

    def __init__(self, broker: Broker, writers: "DiskWriters | None" = None) -> None:
        self._broker = broker
        self._writers = writers

    def answer(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Handle a request. Returns its answer; None: it leaves later, or there is none."""
        answer = dispatch(BROKER_HANDLERS, self._broker, connection, command, connection.read_at_ms)
        if not isinstance(answer, After):
            return answer
        reply, what = answer
        writers = self._writers
        if what is _LOG:
            if writers is None or writers.keep_at_once():
                return reply
            writers.when_kept(partial(_leave, self._broker, connection, command, reply))
        elif self._leaves_now(what):
            return reply
        else:
            self._wait(what, partial(_leave, self._broker, connection, command, reply))
        return None

    def when_kept(self, then: OnDone) -> None:
        """Call `then` when what was stored so far is as safe as the settings ask for: at once, if it is."""
        if self._writers is None or self._writers.keep_at_once():
            then("")
        else:
            self._writers.when_kept(then)

    def stored_leave_now(self) -> bool:
        """Whether the answer to a message that is stored now waits for nothing."""
        return self._writers is None or self._writers.keep_at_once()

    def _leaves_now(self, what: What | Begun) -> bool:
        if isinstance(what, Begun):
            return self._broker.ownership.is_durable
        return self._writers is None and (what is not What.ROUTES or self._broker.catalog.topics_registered is None)

    def _wait(self, what: What | Begun, leave: OnDone) -> None:
        writers = self._writers
        if isinstance(what, Begun):
            self._broker.ownership.when_durable(*what, leave)
        elif writers is None:
            self._registered("", leave)
        elif what is What.GROUPS:
            writers.groups.when_written(leave)
        elif what is What.TOPICS:
            writers.topics.when_written(leave)
        else:
            writers.topics.when_written(lambda reason: self._registered(reason, leave))

    def _registered(self, reason: str, leave: OnDone) -> None:
        """The topics are on the disk, or not: `reason`."""
        registered = self._broker.catalog.topics_registered
        if reason or registered is None:
            leave(reason)
        else:
            registered(partial(leave, ""))


def _leave(
    broker: Broker, connection: Connection, command: RemotingCommand, reply: RemotingCommand, reason: str
) -> None:
    if reason:
        reply = _WHEN_FAILED.get(command.code, _as_error)(broker, command, reply, reason)
    if not command.is_one_way:
        connection.reply(reply)
