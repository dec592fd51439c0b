"""The lock table on a terminal, drawn anew at each look."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lockstep.client.cli_lock_changes import Change, ChangeKind
from lockstep.client.cli_output import clock, counted, seconds
from lockstep.protocol.bodies import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["LiveLocks"]

_SHOWN_FOR_MS = 10_000
_BAR = 10
_STYLES = {
    ChangeKind.ACQUIRED: "green",
    ChangeKind.MOVED: "bold yellow",
    ChangeKind.EXPIRED: "red",
    ChangeKind.RENEWED: "cyan",
}


class LiveLocks:
    """A context manager; `show` draws. A row that has changed says so for ten seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(console=console or Console(), auto_refresh=False)
        self._recent: dict[tuple[str, MessageQueue], tuple[Change, int]] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._live.stop()

    def show(self, rows: list[LockTableRow], found: list[Change], now_ms: int) -> None:
        for change in found:
            self._recent[change.row.consumer_group, change.row.queue] = (change, now_ms)
        owners = len({row.client_id for row in rows})
        title = f"{counted(len(rows), 'lock')}, {counted(owners, 'owner')} at {clock(now_ms)}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for column in ("group", "queue", "owner", "held", "age", "left", ""):
            table.add_column(column, no_wrap=column != "owner", overflow="fold")
        for row in rows:
            table.add_row(*self._cells(row, now_ms))
        self._live.update(table, refresh=True)

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


def _left(row: LockTableRow) -> Text:
    """A bar of the lock's life that is left, and the time."""
    life_ms = max(row.age_ms + row.remaining_ms, 1)
    if row.remaining_ms < 0:
        return Text("·" * _BAR + f"  expired {seconds(-row.remaining_ms)} ago", "red")
    full = round(_BAR * row.remaining_ms / life_ms)
    style = "green" if full > _BAR // 3 else "yellow"
    return Text.assemble(("█" * full + "·" * (_BAR - full), style), f"  {seconds(row.remaining_ms)}")
