"""`lockstep offset`: shows and changes the offsets of a group."""

from functools import partial
from typing import Any, Final

from lockstep.cli.confirm import asks, confirm
from lockstep.cli.lookup import find_queue, readable_queues, topics_of_group
from lockstep.cli.options import ResetOptions, SeekOptions
from lockstep.cli.output import CliError, OutputFormat, StderrLog, counted, date_time, note, print_rows
from lockstep.cli.time import moment_ms
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.offset_moves import Move, Target, planned_move, reset_by_brokers, store_move
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, is_retry_topic
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.texts import known_names

__all__ = ["reset_offsets", "seek_offset", "show_offsets"]

_EARLIEST, _LATEST = "earliest", "latest"
_TIMESTAMPS: Final = {_EARLIEST: 0, _LATEST: -1}  # timestamps of INVOKE_BROKER_TO_RESET_OFFSET (wire.md 2.4)
_SHOWN = ("topic", "broker", "queue_id", "min_offset", "committed_offset", "max_offset", "lag", "last_consumed")
_MOVED = ("topic", "broker", "queue_id", "before", "after", "moved_by")

# show --------------------------------------------------------------------------------------------------------


async def show_offsets(name_server: str, group: str, topic: str | None, output: OutputFormat) -> None:
    """Print committed offsets and lag of each queue. Raises CliError for an unknown group."""
    check_group(group)
    if topic is not None:
        check_topic(topic)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        topics = [topic] if topic is not None else await topics_of_group(admin, group)
        progress = await admin.progress(group, topic)
        rows = []
        for name in topics:
            queues = await readable_queues(admin, name)
            # Read before the ends of the queues: messages consumed between the two reads would give a lag below 0.
            committed = dict(zip(queues, await at_once(partial(admin.consumer_offset, group), queues), strict=True))
            stats = await admin.topic_stats(name)
            for queue in queues:
                low, high = stats[queue][:2] if queue in stats else (0, 0)
                known = progress.offsets.get(queue)
                last_ms = known.last_timestamp if known is not None else 0
                rows.append(_offset_row(queue, low, committed[queue], high, last_ms))
    rows = [row for row in rows if row["max_offset"] or row["topic"] == topic or not is_retry_topic(row["topic"])]
    if output is not OutputFormat.JSON:
        rows = [row | {"last_consumed": date_time(row["last_timestamp"] or 0)} for row in rows]
    print_rows(_SHOWN, rows, output)


def _offset_row(queue: MessageQueue, low: int, committed: int | None, high: int, last_ms: int) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "min_offset": low,
        "committed_offset": committed,
        "max_offset": high,
        "lag": None if committed is None else high - committed,
        "last_timestamp": last_ms or None,
    }


# reset -------------------------------------------------------------------------------------------------------


async def reset_offsets(options: ResetOptions) -> None:
    """Reset a group. The brokers notify online members, who begin again there.

    Without members the offsets are stored.

    As in RocketMQ, no queue moves forward over unconsumed messages without --force. Raises CliError.
    """
    check_group(options.group)
    target_ms = None if options.to_time is None else _timestamp(options.to_time)
    async with AdminClient(name_server=options.name_server, log=StderrLog(verbose=False)) as admin:
        everything = await readable_queues(admin, options.topic)
        queues = [find_queue(name, everything) for name in options.queues or ()] or everything
        online = await _online(admin, options.group, options.topic, known=options.force)
        by_broker = online and target_ms is not None and not options.queues
        if online and not by_broker and not options.force:
            raise CliError(
                f"group {options.group!r} is online, and online members can only be reset to a time, with all queues: "
                f"stop them, or leave --queue and --to-offset away"
            )
        target = Target(options.group, options.topic, target_ms, options.to_offset or 0, options.force)
        moves = await at_once(partial(planned_move, admin, target), dict.fromkeys(queues))
        shown = await _agreed(moves, options)
        if shown is None:
            return
        reset = None
        if by_broker:
            reset = await reset_by_brokers(admin, target, moves)
        if reset is None:
            await at_once(partial(store_move, admin, options.group), moves)
        else:
            moves = [move._replace(after=reset.get(move.queue, move.after)) for move in moves]
    if moves != shown:
        _print_moves(moves, options.output)
    if reset is not None:
        note("the brokers notified the members, which begin there when their listeners have returned")
    elif not any(move.changes for move in moves) and not options.force:
        note("no queue moves; forward, over what was not consumed, takes --force")


def _timestamp(text: str) -> int:
    known = _TIMESTAMPS.get(text)
    if known is not None:
        return known
    return moment_ms(text, "--to-time", AsyncioRuntime().now_ms(), others="earliest, latest, ")


async def _online(admin: AdminClient, group: str, topic: str, *, known: bool) -> bool:
    """Whether the group has members. Raises CliError for an unknown group, unless `known`."""
    if await admin.members(group) is not None:
        return True
    groups = await admin.groups_of(topic)
    if group not in groups and not known:
        raise CliError(
            f"group {group!r} has no offsets of topic {topic!r}; "
            f"{known_names(group, groups, '`lockstep group list`', begin='its groups are')}; --force sets them anyway"
        )
    return False


async def _agreed(moves: list[Move], options: ResetOptions | SeekOptions) -> list[Move] | None:
    """Ask before a change. Raises CliError when the answer is no.

    Returns:
        The moves that were printed with the question; an empty list when nothing was printed; None after a dry run.
    """
    if options.dry_run:
        _print_moves(moves, options.output)
        note("a dry run: nothing is changed")
        return None
    changing = sum(move.changes for move in moves)
    if not changing or not asks(options.yes):
        return []
    shown = moves if options.output is OutputFormat.TABLE else []
    if shown:
        _print_moves(shown, options.output)
    await confirm(f"change {counted(changing, 'offset')} of group {options.group}?")
    return shown


def _print_moves(moves: list[Move], output: OutputFormat) -> None:
    rows = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "before": before,
            "after": after,
            "moved_by": None if before is None else after - before,
        }
        for queue, before, after in moves
    ]
    print_rows(_MOVED, rows, output)


# seek --------------------------------------------------------------------------------------------------------


async def seek_offset(options: SeekOptions) -> None:
    """Set the offset of one queue. Raises CliError when the queue does not have it, and while the group is online."""
    check_group(options.group)
    async with AdminClient(name_server=options.name_server, log=StderrLog(verbose=False)) as admin:
        queue = find_queue(options.queue, await readable_queues(admin, options.topic))
        if await _online(admin, options.group, options.topic, known=options.force) and not options.force:
            raise CliError(
                f"group {options.group!r} is online, and a member would store its own offset over this one: stop it, "
                f"or reset all queues to a time with `lockstep offset reset`"
            )
        low, high = await admin.min_offset(queue), await admin.max_offset(queue)
        words = {_EARLIEST: low, _LATEST: high}
        after = words[options.offset] if options.offset in words else int(options.offset)
        if not low <= after <= high:
            raise CliError(f"queue {queue} has offsets {low} to {high}, and not {after}")
        move = Move(queue, await admin.consumer_offset(options.group, queue), after)
        shown = await _agreed([move], options)
        if shown is None:
            return
        await store_move(admin, options.group, move)
    if not shown:
        _print_moves([move], options.output)
