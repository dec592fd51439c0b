"""Writes traces: the actions of a client as JSON lines in a file, from which `lockstep.order` judges order.

format.py has the table of events and fields. Each call gives its records to the operating system before it returns.
So a `handled` record is in the file before its offset is committed. A killed process may leave a torn last line.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lockstep.order.traces.format import VERSION
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf
from lockstep.remoting.host.runtime import Runtime

__all__ = ["TraceWriter"]

_NO_FENCE: Final[Mapping[str, Any]] = {}
_QUEUES_MAX: Final = 1000
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class TraceWriter:
    def __init__(self, runtime: Runtime, path: str, client_id: str, group: str) -> None:
        self._runtime = runtime
        self._closed = False
        self._file = runtime.storage.open_append(path)
        machine, boot = runtime.clock_id()
        who = {"v": VERSION, "machine": machine, "boot": boot}
        self._who = _text({**who, "host": client_id.partition("@")[0], "client_id": client_id, "group": group})
        self._queues: dict[MessageQueue, str] = {}  # the fields of a queue as text
        self._periods: dict[MessageQueue, tuple[Mapping[str, Any], str]] = {}  # and of its period

    def close(self) -> None:
        """Write `closed` as the last record. Calls that end later, during a shutdown, are not recorded."""
        if not self._closed:
            with suppress(OSError):
                # For example a full disk: then only this record is missing.
                self._write([self._head("closed")])
        self._closed = True
        self._file.close()

    def queue_event(self, event: str, queue: MessageQueue, **fields: Any) -> None:
        """Write one of `acquired`, `positioned`, `committed`, `reset`, `dropped`, `lock_lost`, `dead_lettered`."""
        self._write([self._head(event, queue) + _text(fields)])

    def offsets(self, event: str, records: Iterable[tuple[MessageQueue, Mapping[str, Any], int]]) -> None:
        """Write one record of `event` for each queue, with the fields of its period and an offset, all of one time.

        The fields of a period must not be changed: each period, or a new epoch in it, has a mapping of its own.
        """
        head, text = self._head(event), self._period_text
        self._write([f'{head}{text(queue, fields)},"offset":{offset}' for queue, fields, offset in records])

    def rebalanced(self, fields: Mapping[str, Any]) -> None:
        """Write one `rebalanced` record."""
        self._write([self._head("rebalanced") + _text(fields)])

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
        fields: dict[str, Any] = {"period": period, "status": status, **fence}
        if ordering is not None:
            fields["ordering"] = ordering
        fields["begin_wall_ms"], fields["begin_mono_ns"] = begin
        head = self._head("handled", queue) + _text(fields)
        self._write([
            f'{head},"offset":{message.queue_offset},"key":{_value(key_of(message))},"msg_id":{_encode(message.msg_id)}'
            f',"reconsume_times":{message.reconsume_times}'
            for message in messages
        ])  # fmt: skip

    def now(self) -> tuple[int, int]:
        return self._runtime.now_ms(), self._runtime.monotonic_ns()

    def sent(self, queue: MessageQueue, offset: int, key: str | None, msg_ids: Sequence[str]) -> None:
        """Write one `sent` record for each message. A batch has consecutive offsets, beginning with `offset`."""
        head = self._head("sent", queue) + _text({"key": key})
        self._write([head + _text({"offset": offset + i, "msg_id": msg_id}) for i, msg_id in enumerate(msg_ids)])

    def send_failed(self, topic: str, key: str | None, msg_ids: Sequence[str], outcome: str) -> None:
        """Write one `send_failed` record for each message. `outcome`: the name of a SendOutcome, or SENT_LATER."""
        head = self._head("send_failed") + _text({"topic": topic, "key": key, "outcome": outcome.lower()})
        self._write([head + _text({"msg_id": msg_id}) for msg_id in msg_ids])

    # Records are put together as text, because the values that repeat are encoded once: 3 us a record, not 9.

    def _head(self, event: str, queue: MessageQueue | None = None) -> str:
        """A record without its last fields and its end."""
        now_ms, now_ns = self.now()
        of_queue = "" if queue is None else self._queue_text(queue)
        return f'{{"event":"{event}","wall_ms":{now_ms},"mono_ns":{now_ns}{self._who}{of_queue}'

    def _queue_text(self, queue: MessageQueue) -> str:
        text = self._queues.get(queue)
        if text is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            text = _text({"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id})
            self._queues[queue] = text
        return text

    def _period_text(self, queue: MessageQueue, fields: Mapping[str, Any]) -> str:
        known, text = self._periods.get(queue, (None, ""))
        if known is not fields:
            if len(self._periods) >= _QUEUES_MAX:
                self._periods.clear()
            text = self._queue_text(queue) + _text(fields)
            self._periods[queue] = fields, text
        return text

    def _write(self, records: Sequence[str]) -> None:
        if not self._closed and records:
            self._file.write(("}\n".join(records) + "}\n").encode("utf-8", "replace"))


def _text(fields: Mapping[str, Any]) -> str:
    return "".join([f',"{name}":{_value(value)}' for name, value in fields.items()])


def _value(value: Any) -> str:
    return str(value) if type(value) is int else _encode(value)
