"""What the listener of `lockstep consume` does besides printing: it works, fails and suspends as the options say."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.cli.consume.options import ConsumeOptions, Mode
from lockstep.cli.options import pairs
from lockstep.cli.output import UsageError
from lockstep.cli.time import duration_ms
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.client.consumer.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from lockstep.protocol.messages.message import MessageExt
from lockstep.remoting.host.runtime import Runtime

__all__ = ["ORDERING", "MadeToFail", "WorkingListener", "Workload", "read_workload"]

_Status = ConsumeOrderlyStatus
_SUSPEND: Final = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
_SUSPEND_MIN_MS, _SUSPEND_MAX_MS = 10, 30_000  # a client brings other times into this range (wire.md 12.7)
ORDERING: Final[Mapping[Mode, OrderingName]] = {Mode.ORDERLY: "queue", Mode.BY_KEY: "key", Mode.CONCURRENT: "none"}


class MadeToFail(Exception):
    """The listener fails because an option says so."""


class Workload(NamedTuple):
    """Args:
    work_ms: how long each message takes; `works_ms`: those of a sharding key.
    fail_percent: the chance that a call fails; `fail_keys`: calls for these sharding keys always fail.
    suspends_ms: sharding key -> how long the first call for each message of it suspends its queue, or its key.
    """

    work_ms: int = 0
    works_ms: Mapping[str, int] = {}
    fail_percent: float = 0
    fail_keys: frozenset[str] = frozenset()
    suspends_ms: Mapping[str, int] = {}

    def of(self, message: MessageExt) -> int:
        """How long a message takes, in ms."""
        return self.works_ms.get(message.sharding_key or "", self.work_ms)


def read_workload(options: ConsumeOptions) -> Workload:
    """Raises UsageError."""
    works, suspends = _by_key(options.work_of, "--work-of"), _by_key(options.suspend, "--suspend")
    for key, suspend_ms in suspends.items():
        if not _SUSPEND_MIN_MS <= suspend_ms <= _SUSPEND_MAX_MS:
            raise UsageError(f"--suspend {key}: a queue can be suspended for 10ms to 30s")
    return Workload(
        duration_ms(options.work, "--work") if options.work is not None else 0,
        works,
        _percent(options.fail) if options.fail is not None else 0,
        frozenset(options.fail_key or ()),
        suspends,
    )


def _by_key(texts: list[str] | None, option: str) -> dict[str, int]:
    """Milliseconds by sharding key. Raises UsageError."""
    return {key: duration_ms(text, option) for key, text in pairs(texts, option, "KEY=DURATION").items()}


def _percent(text: str) -> float:
    """Raises UsageError."""
    digits = text.removesuffix("%")
    try:
        percent = float(digits)
    except ValueError:
        percent = -1
    if not 0 <= percent <= 100:
        raise UsageError(f"--fail {text!r}: give a percentage from 0% to 100%, such as 5%")
    return percent


class WorkingListener:
    """An async listener: it works, then fails, suspends, or prints.

    Args:
        write: prints messages, on a thread; False: the command has ended, and they are not handled.
    """

    def __init__(
        self, workload: Workload, mode: Mode, runtime: Runtime, write: Callable[[list[MessageExt]], bool]
    ) -> None:
        self._workload = workload
        self._mode = mode
        self._rng = runtime.rng
        self._pool = runtime.new_worker_pool("print", 1)
        self._write = write

    def close(self) -> None:
        self._pool.close()

    async def __call__(self, messages: list[MessageExt], context: Any) -> Any:
        workload = self._workload
        await asyncio.sleep(sum(map(workload.of, messages)) / 1000)
        for message in messages:
            key = message.sharding_key or ""
            if key in workload.fail_keys:
                raise MadeToFail(f"--fail-key {key}")
            if key in workload.suspends_ms and not message.reconsume_times:
                context.suspend_current_queue_time_ms = workload.suspends_ms[key]
                return _SUSPEND
        if workload.fail_percent and self._rng.random() * 100 < workload.fail_percent:
            raise MadeToFail(f"--fail {workload.fail_percent:g}%")
        printed = await self._pool.submit(lambda: self._write(messages))
        return _DONE[self._mode] if printed else self._not_handled(context)

    def _not_handled(self, context: Any) -> object:
        """The next owner of the queue gets the messages; without order they are sent back, and come again."""
        if self._mode is Mode.ORDERLY:
            context.auto_commit = False
            return _Status.ROLLBACK
        return _SUSPEND if self._mode is Mode.BY_KEY else ConsumeConcurrentlyStatus.RECONSUME_LATER


_DONE: Final[Mapping[Mode, object]] = {
    Mode.ORDERLY: _Status.SUCCESS,
    Mode.BY_KEY: _Status.SUCCESS,
    Mode.CONCURRENT: ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
}
