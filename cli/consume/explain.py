"""Explains on stderr why `lockstep consume` gets no messages."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockstep.cli.consume.workload import MadeToFail
from lockstep.cli.output import StderrLog, counted, note, seconds
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.consumer.push import PushConsumer
from lockstep.client.errors import ClientError
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["ConsumeLog", "Explainer"]

_FIRST_LOOK_S: Final = 2.0
_LOOK_EVERY_S: Final = 1.0
_QUIET_MS: Final = 10_000
_NO_QUEUE: Final = "no queue"
_FLOW_CONTROL: Final = "pull_throttled"  # normal here: the reader of stdout is slower than the pulls


class _Failure(NamedTuple):
    at_ms: int
    text: str


class ConsumeLog(StderrLog):
    """The consumer's log for a person; it also remembers the last failure."""

    def __init__(self, runtime: Runtime, *, verbose: bool) -> None:
        super().__init__(verbose=verbose)
        self._runtime = runtime
        self._shows_all = verbose
        self._last: _Failure | None = None

    def info(self, event: str, **fields: Any) -> None:
        self._remember(event, fields)
        super().info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._remember(event, fields)
        if isinstance(fields.get("exc_info"), MadeToFail):  # asked for: its line says enough
            del fields["exc_info"]
        if self._shows_all or event != _FLOW_CONTROL:
            super().warning(event, **fields)

    error = warning

    def failure_since(self, begin_ms: int) -> str | None:
        """The last failure, or None when it is older."""
        return self._last.text if self._last is not None and self._last.at_ms >= begin_ms else None

    def _remember(self, event: str, fields: dict[str, Any]) -> None:
        if "error" in fields:
            facts = [f" {name}={value}" for name, value in fields.items() if name != "exc_info"]
            self._last = _Failure(self._runtime.now_ms(), event + "".join(facts))


class Explainer:
    """Checks each second whether messages arrive, and prints each reason why not once.

    Args:
        topic: The topic that is consumed.
        admin: A started client, to ask for locks and the ends of queues.
        log: The log of the consumer.
        printed: Returns the number of messages printed so far.
        writing: Returns whether a message is being written to stdout.
    """

    def __init__(
        self,
        topic: str,
        admin: AdminClient,
        consumer: PushConsumer,
        log: ConsumeLog,
        runtime: Runtime,
        *,
        printed: Callable[[], int],
        writing: Callable[[], bool],
    ) -> None:
        self._topic = topic
        self._admin = admin
        self._consumer = consumer
        self._log = log
        self._runtime = runtime
        self._printed = printed
        self._writing = writing
        self._said: set[str] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        last_ms, count = self._runtime.now_ms(), 0
        await asyncio.sleep(_FIRST_LOOK_S)
        if not self._owned() and not self._consumer.pop:
            self._said.add(_NO_QUEUE)
            note(await self._why_no_queue())
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now_ms, now = self._runtime.now_ms(), self._printed()
            if now != count:
                last_ms, count = now_ms, now
                self._said.clear()
            elif now_ms - last_ms >= _QUIET_MS:
                await self._say_why(now_ms - last_ms)

    async def _say_why(self, quiet_ms: int) -> None:
        kind, text = await self._reason(self._runtime.now_ms() - _QUIET_MS)
        if kind and kind not in self._said:
            self._said.add(kind)
            note(f"no message for {quiet_ms // 1000} s: {text}")

    async def _reason(self, since_ms: int) -> tuple[str, str]:
        """The current reason as (kind, text). The kind is "" when there is nothing to print."""
        if self._writing():
            return "stdout", "stdout is full: its reader does not read"
        failure = self._log.failure_since(since_ms)
        if failure is not None:
            return failure.partition(" error=")[2] or failure, failure
        if self._consumer.pop:
            text = f"{self._topic} has nothing that its group has not consumed, or other members hold it"
            return ("", "") if self._printed() else ("end", text)
        owned = self._owned()
        if not owned:
            return _NO_QUEUE, await self._why_no_queue()
        if self._printed():
            return "", ""  # everything is consumed
        return await self._of_queues(owned)

    async def _of_queues(self, owned: list[MessageQueue]) -> tuple[str, str]:
        positions = self._consumer.positions
        placed = [queue for queue in owned if queue in positions]
        if not placed:
            return "not placed", f"{counted(len(owned), 'queue')} locked, and not known yet where to begin"
        try:
            behind = [await self._admin.max_offset(queue) - positions[queue] for queue in placed]
        except (ClientError, RemotingError, ProtocolError) as error:
            return str(error), str(error)
        if sum(behind) > 0:
            waiting = counted(sum(behind), "message")
            return (
                "behind",
                f"{len(placed)} of {counted(len(owned), 'queue')} pulled, {waiting} to come, none failed yet",
            )
        return "end", f"{self._topic} has nothing that its group has not consumed, in {counted(len(placed), 'queue')}"

    def _owned(self) -> list[MessageQueue]:
        return [queue for queue in self._consumer.assigned_queues if queue.topic == self._topic]

    async def _why_no_queue(self) -> str:
        topic, group = self._topic, self._consumer.group
        try:
            rows = await self._admin.list_locks(group)
        except (NotLockstepError, ClientError, RemotingError, ProtocolError):
            rows = []
        held = [row for row in rows if row.queue.topic == topic and row.is_held]
        if not held:
            return f"waiting for a queue of {topic}; group {group} has none for this consumer yet"
        longest = max(held, key=lambda row: row.remaining_ms)
        return (
            f"waiting for a queue of {topic}: group {group} has {len(held)} locked, {longest.client_id} for "
            f"{seconds(longest.remaining_ms)} more unless it renews (`lockstep lock list -g {group}` shows all)"
        )
