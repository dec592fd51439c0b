"""`lockstep consume --queue`: prints the messages of one queue from an offset on. It joins no group."""

from contextlib import AsyncExitStack
from functools import partial

from lockstep.cli.consume.options import ConsumeOptions
from lockstep.cli.format import format_json, parse_format
from lockstep.cli.lookup import find_queue, readable_queues
from lockstep.cli.option_values import QueueName
from lockstep.cli.output import CliError, StderrLog, counted, note, progress, write_out
from lockstep.cli.queue_reader import QueueReader
from lockstep.cli.stdout_reader import while_read
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import AsyncioRuntime

__all__ = ["consume_queue"]


async def consume_queue(options: ConsumeOptions, name: QueueName) -> None:
    """Print until --count, the end with --exit-at-end, or a signal. Raises CliError for an offset that is not there."""
    runtime, printed = AsyncioRuntime(), 0
    format_message = parse_format(options.format) if options.format is not None else format_json
    printing = runtime.new_worker_pool("print", 1)  # a signal ends the command although stdout is full
    async with AsyncExitStack() as stack:
        stack.callback(printing.close)
        log = StderrLog(verbose=options.verbose)
        admin = await stack.enter_async_context(
            AdminClient(name_server=options.name_server, runtime=runtime, log=log),
        )
        queue = find_queue(name, await readable_queues(admin, options.topic))
        first, end = await admin.min_offset(queue), await admin.max_offset(queue)
        offset = _begin(options.offset or "first", queue, first, end)
        stack.push(lambda _type, error, _trace: _summary(error, printed))
        await stack.enter_async_context(while_read(runtime))
        if options.count or options.exit_at_end:
            await stack.enter_async_context(progress(runtime, lambda: printed, "consumed"))
        if options.exit_at_end and offset >= end:
            return
        async for found in QueueReader(admin, runtime, options.tags).follow(queue, offset):
            messages = [one for one in found.messages if not options.exit_at_end or one.queue_offset < end]
            if options.count:
                messages = messages[: options.count - printed]
            printed += len(messages)  # before they are seen, so that a signal after them finds them counted
            await printing.submit(partial(write_out, b"".join(map(format_message, messages))))
            if printed == options.count or (options.exit_at_end and found.next_offset >= end):
                return


def _summary(error: BaseException | None, printed: int) -> None:
    """Say how much was printed, unless nobody reads."""
    if not isinstance(error, BrokenPipeError):
        note(f"consumed {counted(printed, 'message')}")


def _begin(text: str, queue: MessageQueue, first: int, end: int) -> int:
    words = {"first": first, "last": end}
    if text in words:
        return words[text]
    offset = int(text)
    if text.startswith("-"):
        return max(end + offset, first)
    if not first <= offset <= end:
        raise CliError(f"queue {queue} has offsets {first} to {end}, and not {offset}")
    return offset
