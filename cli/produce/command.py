"""`lockstep produce`: sends a message for each line, many in flight, stored in the order of the lines."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import BinaryIO, NamedTuple

from lockstep.cli.format import unescaped
from lockstep.cli.options import ProduceOptions, configured, pairs
from lockstep.cli.output import (
    CliError,
    OutputFormat,
    StderrLog,
    UsageError,
    counted,
    json_line,
    note,
    progress,
    unbuffered,
    write_out,
)
from lockstep.cli.produce.lines import BadLine, Line, LineFormat, LineReader, check_word
from lockstep.client.config import ProducerConfig
from lockstep.client.errors import ClientError, SendError, SendOutcome
from lockstep.client.producer.producer import Producer
from lockstep.client.producer.selectors import select_by_group
from lockstep.client.send_result import SendResult
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.messages.properties import RESERVED_PROPERTIES, SHARDING_KEY_NAMES
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_send_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime, WorkerPool

__all__ = ["produce"]

_GROUP = "lockstep-produce"
_SEND_ERRORS = (ClientError, RemotingError, ProtocolError)


async def produce(options: ProduceOptions) -> None:
    """Send all lines. Raises CliError, ClientError, and errors of options."""
    check_send_topic(options.topic)
    line_format = _line_format(options)
    runtime = AsyncioRuntime()
    config = configured(ProducerConfig(), options.properties)
    log = StderrLog(verbose=False)
    async with Producer(_GROUP, name_server=options.name_server, config=config, runtime=runtime, log=log) as producer:
        await producer.queues(options.topic)  # asked before the first send, so that all sends keep the order of lines
        run = _Run(options, line_format, runtime, producer)
        async with progress(runtime, lambda: run.sent, "sent"):
            await run.run()


def _line_format(options: ProduceOptions) -> LineFormat:
    """Raises UsageError for a key, a tag or a property that a message cannot have."""
    properties = pairs(options.headers, "--header", "NAME=VALUE")
    words = [("--key", options.key), ("--tags", options.tags), ("--keys", options.keys)]
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES or name in SHARDING_KEY_NAMES:
            raise UsageError(f"--header {name}: RocketMQ uses this name; give --key, --keys or --tags, or another name")
        words += [("--header", name), (f"--header {name}", value)]
    delimiter = options.key_delimiter
    if delimiter is not None:
        words.append(("--key-delimiter", delimiter := unescaped(delimiter, "--key-delimiter")))
    for name, word in words:
        if word is not None:
            try:
                check_word(word, name)
            except ValueError as error:
                raise UsageError(str(error)) from None
    return LineFormat(
        topic=options.topic,
        text=options.text,
        envelope=options.envelope,
        key=options.key,
        key_field=options.key_field,
        key_delimiter=delimiter,
        body_field=options.body_field,
        tags=options.tags,
        keys=options.keys,
        properties=properties,
        delay_ms=options.delay_ms,
    )


class _InFlight(NamedTuple):
    line: Line
    message: Message
    task: "asyncio.Task[SendResult]"


class _Run:
    """One task sends in the order of lines; the caller's task collects the results in the same order."""

    def __init__(self, options: ProduceOptions, line_format: LineFormat, runtime: Runtime, producer: Producer) -> None:
        self._options = options
        self._line_format = line_format
        self._runtime = runtime
        self._producer = producer
        self._room = asyncio.Semaphore(options.in_flight)
        self._results: asyncio.Queue[_InFlight | CliError | None] = asyncio.Queue()
        self._queues: dict[MessageQueue, None] = {}
        self._awaited: _InFlight | None = None
        self._failed: Counter[SendOutcome] = Counter()
        self._skipped = 0
        self.sent = 0

    async def run(self) -> None:
        began_ns = self._runtime.monotonic_ns()
        feed = self._runtime.create_task(self._feed(), name="read lines and send")
        try:
            await self._collect()
        finally:
            feed.cancel()
            await self._settle()
            self._summary((self._runtime.monotonic_ns() - began_ns) / 1e9)

    async def _feed(self) -> None:
        pool = self._runtime.new_worker_pool("input", 1)
        try:
            async for line in self._lines(pool):
                message = self._message(line)
                if message is not None:
                    await self._room.acquire()
                    by_group = self._options.message_groups and message.sharding_key is not None
                    sending = self._producer.send(message, selector=select_by_group if by_group else None)
                    task = self._runtime.create_task(sending, name=line.place)
                    self._results.put_nowait(_InFlight(line, message, task))
            self._results.put_nowait(None)
        except CliError as error:
            self._results.put_nowait(error)
        except OSError as error:
            self._results.put_nowait(CliError(f"cannot read: {error}"))
        finally:
            pool.close()

    async def _lines(self, pool: WorkerPool) -> AsyncIterator[Line]:
        files = self._options.files or []
        if not files and sys.stdin.isatty():
            note("a message a line; Ctrl-D ends")
        sources: list[BinaryIO] = [*files] or [sys.stdin.buffer]
        for source in sources:
            name = str(source.name) if len(sources) > 1 else None
            async for line in LineReader(unbuffered(source), pool, name):
                yield line

    def _message(self, line: Line) -> Message | None:
        try:
            return self._line_format.message(line)
        except BadLine as error:
            if not self._options.skip_bad_lines:
                raise
            self._skipped += 1
            note(f"{error}; skipped")
            return None

    async def _collect(self) -> None:
        """Collect results until the lines end. Raises CliError at the first line that was not stored."""
        while (entry := await self._results.get()) is not None:
            if isinstance(entry, CliError):
                raise entry
            self._awaited = entry
            try:
                # A Ctrl-C ends the reading, not the sends in flight.
                result = entry.task.result() if entry.task.done() else await asyncio.shield(entry.task)
            except _SEND_ERRORS as error:
                self._awaited = None
                self._note_failure(error)
                raise CliError(f"{entry.line.place}: {error}") from None
            self._awaited = None
            self._take(entry, result)

    def _take(self, entry: _InFlight, result: SendResult) -> None:
        self._room.release()
        self.sent += 1
        self._queues[result.queue] = None
        if self._options.output is OutputFormat.JSON:
            file = {} if entry.line.file is None else {"file": entry.line.file}
            row = {
                **file,
                "line": entry.line.number,
                "topic": result.queue.topic,
                "broker": result.queue.broker_name,
                "queue_id": result.queue_id,
                "offset": result.queue_offset,
                "key": entry.message.sharding_key,
                "msg_id": result.msg_id,
                "status": result.status,
            }
            write_out(json_line(row).encode("utf-8", "replace") + b"\n")

    async def _settle(self) -> None:
        """Wait for and count the sends that were in flight when reading ended early."""
        rest = [self._awaited]
        while not self._results.empty():
            entry = self._results.get_nowait()
            rest.append(entry if isinstance(entry, _InFlight) else None)
        for in_flight in rest:
            if in_flight is not None:
                try:
                    self._take(in_flight, await in_flight.task)
                except _SEND_ERRORS as error:
                    self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        self._failed[error.outcome if isinstance(error, SendError) else SendOutcome.NOT_SENT] += 1

    def _summary(self, took_s: float) -> None:
        rate = f" ({self.sent / took_s:,.0f}/s)" if self.sent > 1 and took_s > 0 else ""
        to_queues = f" to {counted(len(self._queues), 'queue')} of {self._options.topic}" if self.sent else ""
        parts = [f"sent {counted(self.sent, 'message')}{to_queues} in {took_s:.2f} s{rate}"]
        parts += [f"{count:,} {outcome.value}" for outcome, count in self._failed.items()]
        if self._skipped:
            parts.append(f"{counted(self._skipped, 'bad line')} skipped")
        note(", ".join(parts))
