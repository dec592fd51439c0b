"""`lockstep lock`: prints the brokers' lock tables once, or each change."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from lockstep.cli.lock.changes import Change, ChangeKind, LockKey, journal_changes, left_text, table_changes
from lockstep.cli.lookup import check_brokers
from lockstep.cli.options import WatchOptions
from lockstep.cli.output import OutputFormat, StderrLog, clock, counted, json_line, note, print_rows, seconds, write_out
from lockstep.cli.stdout_reader import while_read
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import LockCursor
from lockstep.client.errors import NoRouteError
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.names import check_group
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import printable

__all__ = ["LockLooks", "Look", "list_locks", "watch_locks"]

# lock list ---------------------------------------------------------------------------------------------------


async def list_locks(name_server: str, group: str | None, output: OutputFormat) -> None:
    """Raises NotLockstepError."""
    if group is not None:
        check_group(group)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        rows = await admin.list_locks(group)
        if not rows:
            await check_brokers(admin)
    if output is OutputFormat.JSON:
        print_rows((), [_as_json(row) for row in rows], output)
    else:
        fenced = any(row.epoch is not None for row in rows)
        print_rows(_FENCED_COLUMNS if fenced else _COLUMNS, [_as_texts(row) for row in rows], output)


_COLUMNS = ("group", "queue", "owner", "held", "age", "left")
_FENCED_COLUMNS = (*_COLUMNS, "epoch", "waiting")


def _as_json(row: LockTableRow) -> dict[str, Any]:
    fenced = {} if row.epoch is None else {
        "epoch": epoch_text(row.epoch), "draining": row.draining, "waiting": row.waiting_count,
    }  # fmt: skip
    return {
        "group": row.consumer_group,
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue_id": row.queue.queue_id,
        "owner": row.client_id,
        "held_ms": row.held_ms,
        "age_ms": row.age_ms,
        "remaining_ms": row.remaining_ms,
        **fenced,
    }


def _as_texts(row: LockTableRow) -> dict[str, str]:
    return {
        "group": row.consumer_group,
        "queue": str(row.queue),
        "owner": row.client_id,
        "held": seconds(row.held_ms),
        "age": seconds(row.age_ms),
        "left": left_text(row),
        "epoch": "" if row.epoch is None else epoch_text(row.epoch),
        "waiting": "" if row.waiting_count is None else str(row.waiting_count),
    }


# lock watch --------------------------------------------------------------------------------------------------

_FIRST_LOOKS_MAX: Final = 5


Show = Callable[[list[LockTableRow], list[Change], int], None]


class Look(NamedTuple):
    """The lock tables, and the changes of owners since the last look."""

    rows: list[LockTableRow]
    changes: list[LockChange]


class LockLooks:
    """Reads the locks again and again."""

    def __init__(self, admin: AdminClient, group: str | None) -> None:
        self._admin = admin
        self._group = group
        self._cursors: dict[str, LockCursor] | None = None
        self._is_silent = False
        self._is_without_brokers = False

    async def first(self) -> Look:
        """Raises NotLockstepError, NoRouteError, RemotingError."""
        _, cursors = await self._admin.list_lock_changes({}, self._group)
        for _ in range(_FIRST_LOOKS_MAX):
            self._cursors, rows = cursors, await self._admin.list_locks(self._group)
            changes, cursors = await self._admin.list_lock_changes(self._cursors, self._group)
            if not any(changes.values()):
                break  # the table is that of the cursors: no change would be told twice
        self._note_absence(cursors)
        return Look(rows, [])

    async def again(self) -> Look | None:
        """None while no broker answers; only the first failure is noted."""
        try:
            by_broker, cursors = await self._admin.list_lock_changes(self._cursors or {}, self._group)
            rows = await self._admin.list_locks(self._group)
        except (RemotingError, NoRouteError) as error:
            if not self._is_silent:
                note(f"{error}; asking again")
            self._is_silent = True
            return None
        self._note_absence(cursors)
        self._note_lost(cursors)
        self._is_silent = False
        self._cursors = {**(self._cursors or {}), **cursors}  # also of brokers that are away: they may come back
        changes = [change for of_broker in by_broker.values() for change in of_broker]
        return Look(rows, sorted(changes, key=lambda change: change.at_ms))

    def _note_absence(self, cursors: Mapping[str, LockCursor]) -> None:
        """Silence would look like a cluster in which nothing changes. Brokers may come: it is noted once."""
        if not cursors and not self._is_without_brokers:
            note("no broker is registered; asking again")
        self._is_without_brokers = not cursors

    def _note_lost(self, cursors: Mapping[str, LockCursor]) -> None:
        for address, cursor in cursors.items():
            before = (self._cursors or {}).get(address)
            if before is not None and before.started_ms != cursor.started_ms:
                note(f"{address} started anew: changes since the last look may be lost")
            if cursor.lost:
                lost = counted(cursor.lost, "change")
                note(f"lost {lost} at {address}, which keeps the last ones only: look more often (--interval)")


async def watch_locks(options: WatchOptions) -> None:
    """Print changes until --count, --seconds or Ctrl-C. A broker that stops answering is asked again.

    Without a broker it waits for one, and says so on stderr.

    Raises:
        NotLockstepError: The brokers are RocketMQ's, which list no locks.
        NoRouteError, RemotingError: No broker answered the first time.
    """
    if options.group is not None:
        check_group(options.group)
    runtime = AsyncioRuntime()
    began_ns = runtime.monotonic_ns()
    before: dict[LockKey, LockTableRow] | None = None
    seen = 0
    view, show = _view(options)
    async with (
        AdminClient(name_server=options.name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin,
        while_read(runtime),
    ):
        locks = LockLooks(admin, options.group)
        look: Look | None = await locks.first()
        with view:
            while True:
                if look is not None:
                    now = {(row.consumer_group, row.queue): row for row in look.rows}
                    found = journal_changes(look.changes, now, refusals=options.refusals)
                    found += table_changes(before, look.rows, renewals=options.renewals)
                    found = found[: options.count - seen] if options.count else found
                    show(look.rows, found, runtime.now_ms())
                    before = now
                    seen += len(found)
                elapsed_ms = (runtime.monotonic_ns() - began_ns) / 1e6
                if seen == options.count or (options.life_ms is not None and elapsed_ms >= options.life_ms):
                    return
                await asyncio.sleep(options.interval_ms / 1000)
                look = await locks.again()


def _view(options: WatchOptions) -> tuple[AbstractContextManager[Any], Show]:
    if options.output is OutputFormat.JSON:
        return nullcontext(), _show_json
    if sys.stdout.isatty():  # a table that is drawn again, instead of a line a change
        from lockstep.cli.lock.live import LiveLocks

        live = LiveLocks()
        return live, live.show
    return nullcontext(), _show_lines


def _show_json(_rows: list[LockTableRow], found: list[Change], now_ms: int) -> None:
    for change in found:
        row = {"at_ms": change.at_ms or now_ms, "change": change.kind.value, **_as_json(change.row)}
        row |= {"previous_owner": change.previous_owner, "cause": change.cause, "rest_ms": change.rest_ms}
        write_out(json_line(row).encode("utf-8", "replace") + b"\n")


def _show_lines(_rows: list[LockTableRow], found: list[Change], now_ms: int) -> None:
    for change in found:
        row, why = change.row, _why(change)
        owner = f"{change.previous_owner} -> {row.client_id}" if change.previous_owner else row.client_id
        if change.kind is ChangeKind.REFUSED:
            owner = f"{row.client_id}, the owner is {change.previous_owner}"
        text = f"{clock(change.at_ms or now_ms)}  {change.kind:<8}  {row.consumer_group}  {row.queue}  {owner}{why}"
        write_out(f"{printable(text)}\n".encode("utf-8", "replace"))


def _why(change: Change) -> str:
    """Why a period ended; how long the queue rested before this one."""
    if change.kind in (ChangeKind.EXPIRED, ChangeKind.RELEASED):
        return f"  ({change.cause})" if change.cause else ""
    return f"  (rested {seconds(change.rest_ms)})" if change.rest_ms else ""
