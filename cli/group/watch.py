"""`lockstep group watch`: the lag of a group, again and again."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from lockstep.cli.group.lag import GroupLook, QueueLook, QueueRate, rates, total
from lockstep.cli.group.options import GroupWatchOptions
from lockstep.cli.lookup import topics_of_group
from lockstep.cli.output import OutputFormat, StderrLog, clock, counted, json_line, note, write_out
from lockstep.cli.stdout_reader import while_read
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.errors import NoRouteError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, is_retry_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import printable

__all__ = ["watch_group"]

Show = Callable[[GroupLook, dict[MessageQueue, QueueRate], int], None]


async def watch_group(options: GroupWatchOptions) -> None:
    """Print the lag until --count, --seconds or Ctrl-C. A broker that stops answering is asked again.

    Raises:
        CliError: For an unknown group.
        NoRouteError, RemotingError: No broker answered the first time.
    """
    check_group(options.group)
    if options.topic is not None:
        check_topic(options.topic)
    runtime = AsyncioRuntime()
    view, show = _view(options)
    async with (
        AdminClient(name_server=options.name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin,
        while_read(runtime),
    ):
        if options.topic is None:
            await topics_of_group(admin, options.group)
        else:
            await admin.route(options.topic)
        before: GroupLook | None = None
        look: GroupLook | None = await _look(admin, runtime, options)
        began_ns, shown, is_silent = runtime.monotonic_ns(), 0, False
        with view:
            while True:
                if look is not None:
                    show(look, rates(before, look), runtime.now_ms())
                    before, shown = look, shown + 1
                elapsed_ms = (runtime.monotonic_ns() - began_ns) / 1e6
                if shown == options.count or (options.life_ms is not None and elapsed_ms >= options.life_ms):
                    return
                await asyncio.sleep(options.interval_ms / 1000)
                try:
                    look, is_silent = await _look(admin, runtime, options), False
                except (RemotingError, NoRouteError) as error:
                    if not is_silent:
                        note(f"{error}; asking again")
                    look, is_silent = None, True


async def _look(admin: AdminClient, runtime: Runtime, options: GroupWatchOptions) -> GroupLook:
    group = options.group
    progress = (await admin.progress(group, options.topic)).offsets
    try:
        owners = {row.queue: row.client_id for row in await admin.list_locks(group) if row.is_held}
    except NotLockstepError:
        owners = {}
    # The statistics have 0 where no offset is stored.
    unclear = [queue for queue, of in progress.items() if not of.consumer_offset and of.broker_offset]
    stored = dict(zip(unclear, await at_once(partial(admin.consumer_offset, group), unclear), strict=True))
    queues = {}
    for queue, of in sorted(progress.items()):
        committed = stored.get(queue, of.consumer_offset)
        if of.broker_offset or not is_retry_topic(queue.topic):
            queues[queue] = QueueLook(owners.get(queue), committed, of.broker_offset, of.last_timestamp)
    return GroupLook(runtime.monotonic_ns(), len(await admin.consumer_ids(group)), queues)


def _view(options: GroupWatchOptions) -> tuple[AbstractContextManager[Any], Show]:
    group = options.group
    if options.output is OutputFormat.JSON:
        return nullcontext(), lambda *looked: _show_json(group, *looked)
    if sys.stdout.isatty():  # a table that is drawn again, instead of a line a look
        from lockstep.cli.group.live import LiveLag

        live = LiveLag(group)
        return live, live.show
    return nullcontext(), lambda *looked: _show_line(group, *looked)


def _show_json(group: str, look: GroupLook, of_queues: dict[MessageQueue, QueueRate], now_ms: int) -> None:
    queues = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "owner": of.owner,
            "committed_offset": of.committed,
            "max_offset": of.end,
            "lag": of.lag,
            "last_timestamp": of.consumed_ms or None,
            **_rates(of_queues[queue]),
        }
        for queue, of in look.queues.items()
    ]
    whole = {"at_ms": now_ms, "group": group, "members": look.members, "total_lag": _lag(look)}
    row = {**whole, **_rates(total([*of_queues.values()])), "queues": queues}
    write_out(json_line(row).encode("utf-8", "replace") + b"\n")


def _rates(rate: QueueRate) -> dict[str, float | None]:
    return {
        "consumed_tps": None if rate.consumed is None else round(rate.consumed, 3),
        "stored_tps": None if rate.stored is None else round(rate.stored, 3),
    }


def _lag(look: GroupLook) -> int:
    return sum(of.lag or 0 for of in look.queues.values())


def _show_line(group: str, look: GroupLook, of_queues: dict[MessageQueue, QueueRate], now_ms: int) -> None:
    rate = total([*of_queues.values()])
    words = [clock(now_ms), group, f"lag {_lag(look):,}", counted(look.members, "member")]
    if rate.consumed is not None:
        words.append(f"consumed {rate.consumed:,.1f}/s")
    if rate.stored is not None:
        words.append(f"stored {rate.stored:,.1f}/s")
    write_out(f"{printable('  '.join(words))}\n".encode("utf-8", "replace"))
