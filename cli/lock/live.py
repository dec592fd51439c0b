"""The lock table on a terminal, drawn again at each read."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lockstep.cli.lock.changes import Change, ChangeKind, left_text
from lockstep.cli.output import clock, counted, seconds
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import printable

__all__ = ["LiveLocks"]

_SHOWN_FOR_MS = 10_000
_BAR = 10
_WIDE = 100  # columns of a terminal that has room for all fields
_GAP, _LEFT, _NEWS, _OWNER_MIN = 2, 10, 8, 12  # columns of a narrow terminal
_STYLES = {
    ChangeKind.ACQUIRED: "green",
    ChangeKind.MOVED: "bold yellow",
    ChangeKind.DRAINING: "yellow",
    ChangeKind.EXPIRED: "red",
    ChangeKind.RENEWED: "cyan",
    ChangeKind.RESET: "cyan",
}


class LiveLocks:
    """A context manager; `show` draws the table. A changed row is marked for ten seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._recent: dict[tuple[str, MessageQueue], tuple[Change, int]] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._live.stop()

    def show(self, rows: list[LockTableRow], found: list[Change], now_ms: int) -> None:
        rows = [_printable(row) for row in rows]
        found = [change._replace(row=_printable(change.row)) for change in found]
        for change in found:
            self._recent[change.row.consumer_group, change.row.queue] = (change, now_ms)
        owners = len({row.client_id for row in rows})
        title = f"{counted(len(rows), 'lock')}, {counted(owners, 'owner')} at {clock(now_ms)}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        width = self._console.width
        if width >= _WIDE:
            fenced = any(row.epoch is not None for row in rows)
            for column in ("group", "queue", "owner", "held", "age", "left", "", *(("epoch", "waiting") * fenced)):
                table.add_column(column, no_wrap=column != "owner", overflow="fold")
            for row in rows:
                table.add_row(*self._cells(row, now_ms), *(_fence_cells(row) * fenced))
        else:
            self._fill_narrow(table, rows, now_ms, width)
        self._live.update(table, refresh=True)

    def _fill_narrow(self, table: Table, rows: list[LockTableRow], now_ms: int, width: int) -> None:
        """Queue, owner, time left and change.

        A long queue name loses its beginning, so that its number stays visible.

        A long owner continues in the next line.
        """
        room = width - _LEFT - _NEWS - 3 * _GAP
        queues = [_queue_text(row, rows) for row in rows]
        owners = max([len(row.client_id) for row in rows], default=0)
        queue_width = max(room - owners, min(room // 2, room - _OWNER_MIN), 1)
        queue_width = min(queue_width, max(map(len, queues), default=1))
        table.add_column("queue", no_wrap=True, width=max(queue_width, len("queue")))
        table.add_column("owner", overflow="fold")
        table.add_column("left", no_wrap=True, width=_LEFT)
        table.add_column("", no_wrap=True, width=_NEWS)
        for row, text in zip(rows, queues, strict=True):
            _, _, owner, _, _, _, news = self._cells(row, now_ms)
            color = "yellow" if row.draining else ""
            left = Text(seconds(row.remaining_ms), color) if row.is_held else Text("expired", "red")
            table.add_row(Text(_end_of(text, queue_width)), owner, left, news)

    def _cells(self, row: LockTableRow, now_ms: int) -> list[Text]:
        change, at_ms = self._recent.get((row.consumer_group, row.queue), (None, 0))
        fresh = change is not None and change.kind in _STYLES and now_ms - at_ms <= _SHOWN_FOR_MS
        news = Text(change.kind.value, _STYLES[change.kind]) if fresh and change is not None else Text()
        return [
            Text(row.consumer_group),
            Text(str(row.queue)),
            Text(row.client_id, "bold yellow" if fresh and change and change.kind is ChangeKind.MOVED else ""),
            Text(seconds(row.held_ms)),
            Text(seconds(row.age_ms)),
            _left(row),
            news,
        ]


def _queue_text(row: LockTableRow, rows: list[LockTableRow]) -> str:
    """The queue, after its group when the table has several groups."""
    several = any(other.consumer_group != row.consumer_group for other in rows)
    return f"{row.consumer_group} {row.queue}" if several else str(row.queue)


def _end_of(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _fence_cells(row: LockTableRow) -> tuple[Text, ...]:
    epoch = "" if row.epoch is None else epoch_text(row.epoch)
    return Text(epoch), Text("" if row.waiting_count is None else str(row.waiting_count))


def _left(row: LockTableRow) -> Text:
    """A bar and a text for the time until the lock expires."""
    life_ms = max(row.age_ms + row.remaining_ms, 1)
    if not row.is_held:
        return Text("·" * _BAR + f"  {left_text(row)}", "red")
    full = round(_BAR * row.remaining_ms / life_ms)
    style = "green" if full > _BAR // 3 and not row.draining else "yellow"
    return Text.assemble(("█" * full + "·" * (_BAR - full), style), f"  {left_text(row)}")


def _printable(row: LockTableRow) -> LockTableRow:
    """The row without control characters: clients choose these names, and a terminal would obey them."""
    topic, broker_name, queue_id = row.queue
    queue = MessageQueue(printable(topic), printable(broker_name), queue_id)
    return row._replace(consumer_group=printable(row.consumer_group), queue=queue, client_id=printable(row.client_id))
