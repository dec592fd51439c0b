"""`lockstep message get`, `hand` and `find`: messages by id, by key, or by queue and offset."""

from collections import deque
from typing import Any

from lockstep.cli.confirm import asks, confirm
from lockstep.cli.format import body_text, message_row, printable
from lockstep.cli.lookup import find_queue, readable_queues
from lockstep.cli.options import FindOptions, GetOptions, HandOptions
from lockstep.cli.output import (
    CliError,
    OutputFormat,
    StderrLog,
    UsageError,
    counted,
    date_time,
    json_line,
    note,
    print_rows,
    progress,
    write_out,
)
from lockstep.cli.time import moment_ms
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.message_track import MessageTrack, track_message
from lockstep.client.admin.messages import id_address
from lockstep.client.admin.stored_messages import read_range
from lockstep.protocol.bodies.client import CMResult
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic
from lockstep.remoting.errors import ConnectFailed
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime

__all__ = ["find_messages", "get_message", "hand_message"]

_BODY_SHOWN = 60  # characters of a body in a table of several messages
_COLUMNS = ("stored", "queue", "offset", "key", "tags", "keys", "msg_id", "body")

# get ---------------------------------------------------------------------------------------------------------


async def get_message(options: GetOptions) -> None:
    """Print a message by its offset message id, or by its own id and topic, with the groups that consumed it.

    Raises CliError when there is no such message, UsageError when the text is not an id.
    """
    if options.topic is not None:
        check_topic(options.topic)
    async with AdminClient(name_server=options.name_server, log=StderrLog(verbose=False)) as admin:
        for message in await _messages_of(admin, options.message_id, options.topic):
            _print_one(message, await track_message(admin, message), options.output)


async def _messages_of(admin: AdminClient, message_id: str, topic: str | None) -> list[MessageExt]:
    """The messages of an id: several when a retry of the producer stored the message twice."""
    if topic is not None and (found := await admin.query_messages(topic, message_id, unique=True)):
        return found
    try:
        address = id_address(message_id)
    except ValueError:
        if topic is not None:
            raise CliError(f"no message of topic {topic!r} has the id {message_id}") from None
        raise UsageError(
            f"{message_id!r} is no offset message id, which names a broker in 32 or 56 hex digits; "
            f"a message is found by its own id (msg_id) with --topic"
        ) from None
    try:
        return [await admin.view_message(message_id)]
    except ConnectFailed as error:
        raise CliError(f"{error}; {address} is the broker that the id names") from None


def _print_one(message: MessageExt, tracks: list[MessageTrack], output: OutputFormat) -> None:
    groups = [{"group": track.consumer_group, "state": track.track_type.value} for track in tracks]
    row = message_row(message)
    if output is OutputFormat.JSON:
        row |= _details(message) | {"consumed_by": groups}
        write_out(json_line(row).encode("utf-8", "replace") + b"\n")
        return
    shown = {name: value for name, value in row.items() if name not in ("body", "body_base64", "properties")}
    shown |= _details(message) | row.get("properties", {}) | {"body": printable(message.body)}
    rows = [{"what": name.replace("_", " "), "value": _shown(name, value)} for name, value in shown.items()]
    print_rows(("what", "value"), rows, output)
    if groups:
        write_out(b"\n")
        print_rows(("group", "state"), groups, output)
    for track in tracks:
        if track.reason is not None:
            note(f"group {track.consumer_group}: {track.reason}")


def _details(message: MessageExt) -> dict[str, Any]:
    return {
        "offset_message_id": message.offset_message_id,
        "commit_log_offset": message.commit_log_offset,
        "stored_bytes": message.stored_bytes,
        "born_timestamp": message.born_timestamp,
        "born_host": _host(message.born_host),
        "store_host": _host(message.store_host),
        "reconsume_times": message.reconsume_times,
        "sys_flag": message.sys_flag,
    }


def _host(place: tuple[bytes, int]) -> str:
    from ipaddress import ip_address  # imported here for a fast start

    host = ip_address(place[0])
    return f"[{host}]:{place[1]}" if host.version == 6 else f"{host}:{place[1]}"


def _shown(name: str, value: object) -> str | None:
    if name.endswith("_timestamp") and isinstance(value, int):
        return date_time(value)
    return None if value is None else str(value)  # numbers without separators, ready to be typed in another command


# hand --------------------------------------------------------------------------------------------------------


async def hand_message(options: HandOptions) -> None:
    """Call a member's listener with a message; offsets do not change. Raises CliError when the listener fails."""
    check_group(options.group)
    if options.topic is not None:
        check_topic(options.topic)
    async with AdminClient(name_server=options.name_server, log=StderrLog(verbose=False)) as admin:
        message = (await _messages_of(admin, options.message_id, options.topic))[0]
        client_id = options.client_id or await _any_member(admin, options.group)
        if asks(options.yes):
            await confirm(f"have {client_id} of group {options.group} consume {message.msg_id}?")
        result = await admin.consume_directly(message, options.group, client_id)
    row = {
        "client_id": client_id,
        "result": result.consume_result.name,
        "orderly": result.order,
        "auto_commit": result.auto_commit,
        "spent_ms": result.spent_time_mills,
        "remark": result.remark,
    }
    print_rows(tuple(row), [row], options.output)
    if result.consume_result not in (CMResult.CR_SUCCESS, CMResult.CR_COMMIT):
        raise CliError(f"the listener did not handle it: {result.remark or result.consume_result.name}")


async def _any_member(admin: AdminClient, group: str) -> str:
    members = await admin.consumer_ids(group)
    if not members:
        raise CliError(f"no member of group {group!r} is online")
    return members[0]


# find --------------------------------------------------------------------------------------------------------


async def find_messages(options: FindOptions) -> None:
    """Print messages of a key, or the one at an offset. Raises CliError when there is none."""
    check_topic(options.topic)
    runtime = AsyncioRuntime()
    now_ms = runtime.now_ms()
    begin_ms = moment_ms(options.begin, "--begin", now_ms) if options.begin is not None else 0
    end_ms = moment_ms(options.end, "--end", now_ms) if options.end is not None else 2**63 - 1
    if begin_ms > end_ms:
        raise UsageError("--begin is after --end")
    async with AdminClient(name_server=options.name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin:
        if options.key is not None:
            messages = await _of_sharding_key(admin, runtime, options, options.key, begin_ms, end_ms)
        elif options.keys is not None:
            messages = await admin.query_messages(
                options.topic, options.keys, begin_ms=begin_ms, end_ms=end_ms, count_max=options.count_max
            )
        else:
            messages = [await _message_at(admin, options)]
    if not messages:
        # Each option tells of the other one: mqadmin, and others, call a word of KEYS a key.
        has, tip = f"the sharding key {options.key!r}", "--keys finds a word of KEYS"
        if options.keys is not None:
            has, tip = f"{options.keys!r} among its KEYS", "--key finds a sharding key"
        raise CliError(f"no message of topic {options.topic!r} has {has} in that time; {tip}")
    if options.output is OutputFormat.JSON:
        print_rows((), [message_row(message) | _details(message) for message in messages], options.output)
        return
    print_rows(_COLUMNS, [_table_row(message) for message in messages], options.output)
    if options.queue is None and len(messages) == options.count_max:
        note(f"the newest {counted(options.count_max, 'message')}; --max and --end find others")


async def _of_sharding_key(
    admin: AdminClient, runtime: Runtime, options: FindOptions, key: str, begin_ms: int, end_ms: int
) -> list[MessageExt]:
    """The newest messages of a sharding key, oldest first: brokers have no index of it, so the queues are read."""
    queues, stats = await readable_queues(admin, options.topic), await admin.topic_stats(options.topic)
    read_count = 0

    async def of_queue(queue: MessageQueue) -> deque[MessageExt]:
        nonlocal read_count
        found = deque[MessageExt](maxlen=options.count_max)
        low, end = stats[queue][:2] if queue in stats else (0, 0)
        # The search may end before the time (wire.md 8.2).
        start = max(low, await admin.search_offset(queue, begin_ms) if begin_ms else 0)
        async for message in read_range(admin, queue, start, end):
            read_count += 1
            if message.store_timestamp > end_ms:
                break
            if message.sharding_key == key and message.store_timestamp >= begin_ms:
                found.append(message)
        return found

    async with progress(runtime, lambda: read_count, "messages read"):
        of_queues = await at_once(of_queue, queues)
    found = [message for of_one in of_queues for message in of_one]
    found.sort(key=lambda one: (one.store_timestamp, one.broker_name, one.queue_id, one.queue_offset))
    return found[-options.count_max :]


async def _message_at(admin: AdminClient, options: FindOptions) -> MessageExt:
    assert options.queue is not None
    assert options.offset is not None
    queue = find_queue(options.queue, await readable_queues(admin, options.topic))
    found = await admin.read_queue(queue, options.offset, count_max=1)
    messages = [message for message in found.messages if message.queue_offset == options.offset]
    if not messages:
        low, high = await admin.min_offset(queue), await admin.max_offset(queue)
        has = f"{low} to {high - 1}" if high > low else "none"
        raise CliError(f"queue {queue} has no message at offset {options.offset}; it has {has}")
    return messages[0]


def _table_row(message: MessageExt) -> dict[str, Any]:
    body = body_text(message)
    return {
        "stored": date_time(message.store_timestamp),
        "queue": f"{message.broker_name}:{message.queue_id}",
        "offset": message.queue_offset,
        "key": message.sharding_key,
        "tags": message.tags,
        "keys": message.keys,
        "msg_id": message.msg_id,
        "body": body if len(body) <= _BODY_SHOWN else body[: _BODY_SHOWN - 1] + "…",
    }
