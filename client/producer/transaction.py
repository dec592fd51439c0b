"""TransactionProducer: consumers get a message only if the producer's local transaction succeeds (wire.md 11).

The message waits on the broker as a half message while the producer executes its local transaction. Then the producer
tells the broker to commit it or to roll it back. If it does not, the broker checks the transaction with any member of
the producer's group, every 60 s and up to 15 times.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Unpack

from lockstep.client.callables import log_or_raise
from lockstep.client.errors import NoRouteError
from lockstep.client.hooks import EndTransactionContext, EndTransactionHook, LocalTransactionState
from lockstep.client.instance.client import BrokerCall, MQClientInstance
from lockstep.client.producer.producer import Producer, ProducerOptions, ProducerParts
from lockstep.client.producer.request_reply import introduce
from lockstep.client.producer.wrong_types import wrong_type
from lockstep.client.send_result import SEND_OK, SendResult
from lockstep.protocol.codes import RequestCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import Pulled, decode_records
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import WorkerPool
from lockstep.remoting.logs import log_exception, text_of

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
    """The message that a listener gets, with the id of its transaction. Checks carry the same id."""

    transaction_id: str = ""
    check_immunity_seconds: int | None = None

    def wire_properties(self) -> dict[str, str]:
        result = Message.wire_properties(self)
        if self.check_immunity_seconds is not None:
            result[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(self.check_immunity_seconds)
        return result


class TransactionListener(Protocol):
    """Two functions, each plain (it runs on a thread) or `async def`. None and exceptions mean UNKNOWN."""

    def execute_local_transaction(self, message: HalfMessage, arg: Any, /) -> _Answer:
        """Execute the local transaction while the half message waits."""

    def check_local_transaction(self, message: MessageExt, /) -> _Answer:
        """Return the state of transaction `message.transaction_id`, which another member may have executed."""


class TransactionSendResult(NamedTuple):
    """The result of sending the half message. Consumers see the message at another `queue_offset`.

    If the status is not SEND_OK, the local transaction was not executed, and the message is rolled back.
    """

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


class _Decision(NamedTuple):
    """The listener's result. `remark` describes its error, for the broker's log."""

    state: LocalTransactionState
    remark: str | None = None


class TransactionProducer(Producer):
    """`async with TransactionProducer("group", listener=...) as producer: await producer.send_in_transaction(message)`

    It can do all that a Producer can. Start it even if it never sends: then brokers can check the transactions of its
    group with it.

    Args:
        listener: executes and checks the local transactions.
        options: the other keyword arguments of Producer.
    """

    def __init__(self, group: str, *, listener: TransactionListener, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(group, **options)
        self._listener = listener
        self._executing: WorkerPool | None = None
        self._checking: WorkerPool | None = None
        self._one_check = asyncio.Semaphore(self.config.check_thread_pool_size)
        self._checks: dict[asyncio.Task[None], None] = {}

    def register_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Register a hook that is called before the broker gets the end of a transaction."""
        self._hooks.add_end_transaction(hook)

    async def _start(self) -> None:
        """After it, the brokers that create topics know this producer, if they could be reached."""
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
        """Unanswered checks stay open: the broker sends them again, perhaps to another member."""
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
        """Send a half message, call `listener.execute_local_transaction(message, arg)`, and send the broker its result.

        The half message goes to any queue. A delay level is dropped, as RocketMQ does. If the broker does not get the
        result, it checks the transaction later.

        Args:
            check_immunity_seconds: the broker does not check the transaction for this time; None: its setting, 6 s.

        Raises:
            As `send`. Then the local transaction was not executed.
        """
        parts = self._started()
        if error := wrong_type(message, None):
            raise error
        half = HalfMessage(**{f.name: getattr(message, f.name) for f in fields(Message)})
        half.delay_level, half.check_immunity_seconds = 0, check_immunity_seconds
        outgoing = parts.requests.outgoing(half, half.sharding_key, half=True)
        half.transaction_id = outgoing.msg_id
        timeout_ms = self._timeout_ms(timeout_ms)
        sent = await parts.anywhere.send(outgoing, timeout_ms)
        if sent.status == SEND_OK:
            assert self._executing is not None
            execute = partial(self._listener.execute_local_transaction, half, arg)
            decision = await self._ask(execute, self._executing, "executeLocalTransactionBranch exception")
        else:
            decision = _Decision(_State.ROLLBACK_MESSAGE)
        await self._end(parts, sent, half, decision)
        queue = self._tenant.bare_queue(sent.queue)
        return TransactionSendResult(*sent._replace(queue=queue)[:5], half.transaction_id, decision.state)

    async def _end(self, parts: ProducerParts, sent: SendResult, half: HalfMessage, decision: _Decision) -> None:
        """Send the end of the transaction one-way, as RocketMQ does: if it gets lost, the broker checks."""
        try:
            header = EndTransactionRequestHeader(
                self.group,
                sent.queue_offset,
                decode_offset_message_id(sent.offset_msg_id).commit_log_offset,
                _DECISIONS[decision.state],
                sent.msg_id,
                False,
                half.transaction_id,
            )
            endpoint = await parts.instance.dialer.endpoint(parts.instance.address_of(sent.queue.broker_name))
            self._send_end(endpoint, header, half, decision)
        except (RemotingError, NoRouteError, ValueError) as error:
            self._log.warning(
                "transaction_end_not_sent",
                msg_id=sent.msg_id,
                state=decision.state.value,
                error=str(error),
            )

    def _send_end(
        self,
        endpoint: Endpoint,
        header: EndTransactionRequestHeader,
        message: Message | MessageExt,
        decision: _Decision,
    ) -> None:
        context = EndTransactionContext(
            self.group,
            message,
            endpoint.address,
            header.msg_id or "",
            header.transaction_id or "",
            decision.state,
            header.from_transaction_check,
        )
        self._hooks.end_transaction(context)
        endpoint.send_one_way(RemotingCommand(RequestCode.END_TRANSACTION, header, remark=decision.remark))

    async def _ask(self, call: Callable[[], Any], pool: WorkerPool, failing: str) -> _Decision:
        """Call the listener. If it raises, the error becomes the remark."""
        try:
            if inspect.iscoroutinefunction(getattr(call, "func", call)):
                state = await call()
            else:
                state = await pool.submit(call)
                if inspect.isawaitable(state):
                    # A plain function that returned a coroutine.
                    state = await state
        except BaseException as error:
            log_or_raise(self._log, "transaction_listener_failed", error, consequence="state UNKNOWN")
            return _Decision(_State.UNKNOWN, f"{failing}: {text_of(error)}")
        if state is not None and not isinstance(state, LocalTransactionState):
            wrong = TypeError(f"it returned {state!r:.80}; allowed: None or a LocalTransactionState")
            log_exception(self._log, "transaction_listener_result_invalid", wrong, consequence="state UNKNOWN")
            state = None
        return _Decision(state or _State.UNKNOWN)

    # Checks ---------------------------------------------------------------------------------------------------

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
        """Answer a check, with the offsets of the check: the half message has another offset now (wire.md 11)."""
        assert self._checking is not None
        (message,) = await instance.unpack_all(pulled)
        message.topic = self._tenant.bare(message.topic)
        async with self._one_check:
            check = partial(self._listener.check_local_transaction, message)
            decision = await self._ask(check, self._checking, "checkLocalTransactionState Exception")
        header = EndTransactionRequestHeader(
            self.group,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            _DECISIONS[decision.state],
            message.msg_id,
            True,
            asked.transaction_id,
        )
        self._send_end(endpoint, header, message, decision)
