"""Writes traces: the actions of a client as JSON lines in a file, from which `lockstep.order` judges order.

format.py has the table of events and fields. Each call gives its records to the operating system before it returns.
So a `handled` record is in the file before its offset is committed. A killed process may leave a torn last line.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lockstep.order.format import VERSION
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf
from lockstep.remoting.runtime import Runtime

__all__ = ["TraceWriter"]

_NO_FENCE: Final[Mapping[str, Any]] = {}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class TraceWriter:
    def __init__(self, runtime: Runtime, path: str, client_id: str, group: str) -> None:
        self._runtime = runtime
        self._closed = False
        self._file = runtime.storage.open_append(path)
        machine, boot = runtime.clock_id()
        self._who: dict[str, Any] = {"v": VERSION, "machine": machine, "boot": boot}
        self._who |= {"host": client_id.partition("@")[0], "client_id": client_id, "group": group}

    def close(self) -> None:
        """Write `closed` as the last record. Calls that end later, during a shutdown, are not recorded."""
        if not self._closed:
            with suppress(OSError):  # for example a full disk: then only this record is missing
                self._write([self._head("closed")])
        self._closed = True
        self._file.close()

    def queue_event(self, event: str, queue: MessageQueue, **fields: Any) -> None:
        """Write one of `acquired`, `positioned`, `committed`, `reset`, `dropped`, `lock_lost`, `dead_lettered`."""
        self._write([{**self._head(event), **_queue(queue), **fields}])

    def rebalanced(self, fields: Mapping[str, Any]) -> None:
        """Write one `rebalanced` record."""
        self._write([{**self._head("rebalanced"), **fields}])

    def handled(
        self,
        queue: MessageQueue,
        period: int,
        messages: Sequence[MessageExt],
        status: str,
        begin: tuple[int, int],
        fence: Mapping[str, Any] = _NO_FENCE,
        *,
        ordering: str | None = None,
        key_of: KeyOf = SHARDING_KEY_OF,
    ) -> None:
        """Write one `handled` record for each message of a listener call.

        Args:
            begin: (wall_ms, mono_ns) before the call.
            fence: Fields of a fenced lock: `epoch`, and `outlived_ms` of a call that ran beyond its lease.
            ordering: What the call keeps in order: "key", "none", or None for the whole queue.
            key_of: Returns the key of a message.
        """
        head = {**self._head("handled"), **_queue(queue), "period": period, "status": status, **fence}
        if ordering is not None:
            head["ordering"] = ordering
        head["begin_wall_ms"], head["begin_mono_ns"] = begin
        self._write([
            {
                **head,
                "offset": message.queue_offset,
                "key": key_of(message),
                "msg_id": message.msg_id,
                "reconsume_times": message.reconsume_times,
            }
            for message in messages
        ])  # fmt: skip

    def now(self) -> tuple[int, int]:
        return self._runtime.now_ms(), self._runtime.monotonic_ns()

    def sent(self, queue: MessageQueue, offset: int, key: str | None, msg_ids: Sequence[str]) -> None:
        """Write one `sent` record for each message. A batch has consecutive offsets, beginning with `offset`."""
        head = {**self._head("sent"), **_queue(queue), "key": key}
        self._write([{**head, "offset": offset + i, "msg_id": msg_id} for i, msg_id in enumerate(msg_ids)])

    def send_failed(self, topic: str, key: str | None, msg_ids: Sequence[str], outcome: str) -> None:
        """Write one `send_failed` record for each message. `outcome` is the name of a SendOutcome."""
        head = {**self._head("send_failed"), "topic": topic, "key": key, "outcome": outcome.lower()}
        self._write([{**head, "msg_id": msg_id} for msg_id in msg_ids])

    def _head(self, event: str) -> dict[str, Any]:
        return {
            "event": event,
            "wall_ms": self._runtime.now_ms(),
            "mono_ns": self._runtime.monotonic_ns(),
            **self._who,
        }

    def _write(self, records: Sequence[dict[str, Any]]) -> None:
        if not self._closed:
            self._file.write("".join([_encode(record) + "\n" for record in records]).encode("utf-8", "replace"))


def _queue(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
