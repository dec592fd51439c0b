"""Requests that wait for their replies, by opaque, under one timer for the earliest deadline."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from lockstep.protocol.codes import request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.errors import RemotingError, RequestTimeout
from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["PendingRequests"]


class _Pending(NamedTuple):
    future: "asyncio.Future[RemotingCommand]"
    deadline_ms: int
    code: int
    timeout_ms: int


class PendingRequests:
    """`address` names the peer in errors. What has timed out fails with RequestTimeout."""

    def __init__(self, runtime: Runtime, address: Callable[[], str]) -> None:
        self._runtime = runtime
        self._address = address
        self._pending: dict[int, _Pending] = {}
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._pending

    def add(
        self, opaque: int, future: "asyncio.Future[RemotingCommand]", code: int, timeout_ms: int, now_ms: int
    ) -> None:
        deadline_ms = now_ms + timeout_ms
        self._pending[opaque] = _Pending(future, deadline_ms, code, timeout_ms)
        if self._timer is None or deadline_ms < self._timer_at_ms:
            self._arm(now_ms, deadline_ms)

    def finish(self, reply: RemotingCommand) -> None:
        """A reply has come. One that nobody waits for any more is dropped."""
        entry = self._pending.pop(reply.opaque, None)
        if entry is not None and not entry.future.done():
            entry.future.set_result(reply)

    def fail_all(self, error: Callable[[], RemotingError]) -> None:
        """The connection has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            if not entry.future.done():
                entry.future.set_exception(error())

    def _arm(self, now_ms: int, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._runtime.call_later_ms(max(deadline_ms - now_ms, 0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._runtime.now_ms()
        expired = [opaque for opaque, entry in self._pending.items() if entry.deadline_ms <= now_ms]
        for opaque in expired:
            future, _, code, timeout_ms = self._pending.pop(opaque)
            if not future.done():
                future.set_exception(RequestTimeout(self._address(), request_name(code), timeout_ms))
        if self._pending:
            self._arm(now_ms, min(entry.deadline_ms for entry in self._pending.values()))
