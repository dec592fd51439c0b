"""Transactions: a message that consumers see only if its producer's own work succeeds (wire.md 11).

The message waits on the broker as a half message while the producer does its part, and the producer then tells the
broker to commit or to drop it. Of a producer that does not tell the broker asks, every 60 s and up to 15 times, any
member of the producer's group.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.hooks import EndTransactionContext, EndTransactionHook, LocalTransactionState
from lockstep.client.instance.client import BrokerCall, MQClientInstance
from lockstep.client.producer.producer import Producer, ProducerParts
from lockstep.client.producer.request_reply import introduce
from lockstep.client.producer.result import SEND_OK, SendResult
from lockstep.protocol import properties as names
from lockstep.protocol.codes import RequestCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from lockstep.protocol.ids import decode_offset_message_id
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.pulled import Pulled, decode_records
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.logs import EventLog, log_exception
from lockstep.remoting.runtime import Runtime, WorkerPool

__all__ = ["HalfMessage", "TransactionListener", "TransactionProducer", "TransactionSendResult"]

_State = LocalTransactionState
_DECISIONS: Final = {
    _State.COMMIT_MESSAGE: int(SysFlag.TRANSACTION_COMMIT),
    _State.ROLLBACK_MESSAGE: int(SysFlag.TRANSACTION_MASK),
    _State.UNKNOWN: 0,
}
_Answer = LocalTransactionState | Awaitable[LocalTransactionState | None] | None


@dataclass(slots=True)
class HalfMessage(Message):
    """What a listener is shown: the message and its transaction's id, by which a check asks later."""

    transaction_id: str = ""
    check_immunity_seconds: int | None = None

    def wire_properties(self) -> dict[str, str]:
        result = Message.wire_properties(self)
        if self.check_immunity_seconds is not None:
            result[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(self.check_immunity_seconds)
        return result


class TransactionListener(Protocol):
    """Two functions, each plain (then on a thread) or `async def`. None, or an exception, is UNKNOWN."""

    def execute_local_transaction(self, message: HalfMessage, arg: Any, /) -> _Answer:
        """The producer's own part, done while the message waits."""

    def check_local_transaction(self, message: MessageExt, /) -> _Answer:
        """What became of it? `message.transaction_id` names the transaction, which may be another member's."""


class TransactionSendResult(NamedTuple):
    """As SendResult, of the half message: `queue_offset` is not where consumers find it. Unless the status is SEND_OK
    the local transaction was not executed and the message is rolled back."""

    status: str
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str
    local_transaction_state: LocalTransactionState

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id


class _Told(NamedTuple):
    """What a listener said; `remark` is what went wrong with it, for the broker's log."""

    state: LocalTransactionState
    remark: str | None = None


class TransactionProducer(Producer):
    """`async with TransactionProducer("group", listener=...) as producer: await producer.send_in_transaction(message)`

    Everything else that a Producer can do goes as there. Start it, even if it never sends: then brokers may ask it
    after its group's transactions.
    """

    def __init__(
        self,
        group: str,
        *,
        listener: TransactionListener,
        name_server: str | None = None,
        namespace: str | None = None,
        config: ProducerConfig | None = None,
        trace: str | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        super().__init__(
            group,
            name_server=name_server,
            namespace=namespace,
            config=config,
            trace=trace,
            runtime=runtime,
            log=log,
        )
        self._listener = listener
        self._executing: WorkerPool | None = None
        self._checking: WorkerPool | None = None
        self._one_check = asyncio.Semaphore(self.config.check_thread_pool_size)
        self._checks: dict[asyncio.Task[None], None] = {}

    def register_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Called before the broker is told."""
        self._hooks.add_end_transaction(hook)

    async def _start(self) -> None:
        """Brokers that make topics know this producer afterwards, as far as they could be reached."""
        await super()._start()
        config, instance = self.config, self._started().instance
        new_pool = instance.runtime.new_worker_pool
        self._executing = new_pool(f"{self.group} local transaction", config.local_transaction_thread_count)
        self._checking = new_pool(f"{self.group} transaction check", config.check_thread_pool_size)
        try:
            await introduce(instance, config.create_topic_key, config.request_timeout_ms)
        except BaseException:
            await self._shutdown()
            raise

    async def _shutdown(self) -> None:
        """Questions of brokers that are not answered yet stay open: the brokers ask again, or another member."""
        for task in list(self._checks):
            task.cancel()
        await super()._shutdown()
        for pool in (self._executing, self._checking):
            if pool is not None:
                pool.close()

    # Sending -------------------------------------------------------------------------------------------------

    async def send_in_transaction(
        self,
        message: Message,
        arg: Any = None,
        *,
        check_immunity_seconds: int | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """Send a half message, do the local transaction (`listener.execute_local_transaction(message, arg)`), and tell
        the broker how it went.

        The half message goes to any queue; a delay level is dropped, as RocketMQ drops it. For so many seconds
        (`check_immunity_seconds`, else the broker's 6) no broker asks after it. Raises as `send`: then nothing was
        executed. A broker that cannot be told asks later.
        """
        parts = self._started()
        half = HalfMessage(**{f.name: getattr(message, f.name) for f in fields(Message)})
        half.delay_level, half.check_immunity_seconds = 0, check_immunity_seconds
        outgoing = parts.requests.outgoing(half, half.sharding_key, half=True)
        half.transaction_id = outgoing.msg_id
        timeout_ms = timeout_ms or self.config.send_timeout_ms
        sent = await parts.anywhere.send(outgoing, timeout_ms, traced=False)
        if sent.status == SEND_OK:
            assert self._executing is not None
            execute = partial(self._listener.execute_local_transaction, half, arg)
            told = await self._ask(execute, self._executing, "executeLocalTransactionBranch exception")
        else:
            told = _Told(_State.ROLLBACK_MESSAGE)
        await self._end(parts, sent, half, told)
        queue = self._tenant.bare_queue(sent.queue)
        return TransactionSendResult(*sent._replace(queue=queue), half.transaction_id, told.state)

    async def _end(self, parts: ProducerParts, sent: SendResult, half: HalfMessage, told: _Told) -> None:
        """One way, as RocketMQ: what gets lost is asked for."""
        try:
            header = EndTransactionRequestHeader(
                self.group,
                sent.queue_offset,
                decode_offset_message_id(sent.offset_msg_id).commit_log_offset,
                _DECISIONS[told.state],
                sent.msg_id,
                False,
                half.transaction_id,
            )
            endpoint = await parts.instance.dialer.endpoint(parts.instance.address_of(sent.queue.broker_name))
            self._tell_end(endpoint, header, half, told)
        except (RemotingError, NoRouteError, ValueError) as error:
            self._log.warning(
                "transaction_end_not_sent",
                msg_id=sent.msg_id,
                state=told.state.value,
                error=str(error),
            )

    def _tell_end(
        self, endpoint: Endpoint, header: EndTransactionRequestHeader, message: Message | MessageExt, told: _Told
    ) -> None:
        context = EndTransactionContext(
            self.group,
            message,
            endpoint.address,
            header.msg_id or "",
            header.transaction_id or "",
            told.state,
            header.from_transaction_check,
        )
        self._hooks.end_transaction(context)
        endpoint.send_one_way(RemotingCommand(RequestCode.END_TRANSACTION, header, remark=told.remark))

    async def _ask(self, call: Callable[[], Any], pool: WorkerPool, failing: str) -> _Told:
        """The listener's word; what it raises becomes the remark."""
        try:
            if inspect.iscoroutinefunction(getattr(call, "func", call)):
                state = await call()
            else:
                state = await pool.submit(call)
                if inspect.isawaitable(state):  # a plain function that hands out a coroutine
                    state = await state
        except Exception as error:
            reason = f"{failing}: {type(error).__name__}: {error}"
            log_exception(self._log, "transaction_listener_failed", error, consequence="state UNKNOWN")
            return _Told(_State.UNKNOWN, reason)
        if state is not None and not isinstance(state, LocalTransactionState):
            wrong = TypeError(f"it returned {state!r:.80}; allowed: None or a LocalTransactionState")
            log_exception(self._log, "transaction_listener_result_invalid", wrong, consequence="state UNKNOWN")
            state = None
        return _Told(state or _State.UNKNOWN)

    # Questions of brokers ------------------------------------------------------------------------------------

    def _broker_calls(self, parts: ProducerParts) -> Mapping[int, BrokerCall]:
        return {**super()._broker_calls(parts), RequestCode.CHECK_TRANSACTION_STATE: self._check}

    def _check(self, endpoint: Endpoint, command: RemotingCommand) -> None:
        header = command.decode_header(CheckTransactionStateRequestHeader)
        pulled = decode_records(command.body, "")
        if len(pulled.messages) != 1:
            raise BodyError(f"one message is expected, not {len(pulled.messages)}")
        (message,) = pulled.messages
        group = message.properties.get(names.PGROUP)
        if group != self.group:
            why = f"the transaction belongs to group {group!r}"
            self._log.warning("transaction_check_ignored", msg_id=message.msg_id, why=why)
        elif self._parts is None:
            self._log.info("transaction_check_ignored", msg_id=message.msg_id, why="the producer is shut down")
        elif len(self._checks) >= self.config.check_request_hold_max:
            why = f"{len(self._checks)} checks wait already, as many as check_request_hold_max allows"
            self._log.warning("transaction_check_ignored", msg_id=message.msg_id, why=why)
        else:
            instance = self._parts.instance
            answering = self._answer(instance, endpoint, header, pulled)
            task = instance.runtime.create_task(answering, name=f"check {message.msg_id}")
            self._checks[task] = None
            task.add_done_callback(lambda done: self._checks.pop(done, None))

    async def _answer(
        self, instance: MQClientInstance, endpoint: Endpoint, asked: CheckTransactionStateRequestHeader, pulled: Pulled
    ) -> None:
        """With the offsets of the question: the half message stands elsewhere by now (wire.md 11)."""
        assert self._checking is not None
        (message,) = await instance.unpack_all(pulled)
        message.topic = self._tenant.bare(message.topic)
        async with self._one_check:
            check = partial(self._listener.check_local_transaction, message)
            told = await self._ask(check, self._checking, "checkLocalTransactionState Exception")
        header = EndTransactionRequestHeader(
            self.group,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            _DECISIONS[told.state],
            message.msg_id,
            True,
            asked.transaction_id,
        )
        self._tell_end(endpoint, header, message, told)
