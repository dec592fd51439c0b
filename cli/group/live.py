"""The lag of a group on a terminal, drawn again at each look."""

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lockstep.cli.group.lag import GroupLook, QueueLook, QueueRate, left_s, total
from lockstep.cli.output import clock, counted, seconds
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import printable

__all__ = ["LiveLag"]

_AROUND: Final = 4  # lines of a terminal that are no rows: title, header, what is left out, the cursor
_WIDE: Final = 100  # columns of a terminal that has room for all fields
_OF_WIDE: Final = ("owner", "committed", "end")
_COLUMNS: Final = ("queue", *_OF_WIDE, "lag", "consumed/s", "stored/s", "behind")


class LiveLag:
    """A context manager; `show` draws the table."""

    def __init__(self, group: str, console: Console | None = None) -> None:
        self._group = printable(group)
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._live.stop()

    def show(self, look: GroupLook, of_queues: dict[MessageQueue, QueueRate], now_ms: int) -> None:
        is_wide = self._console.width >= _WIDE
        table = Table(title=self._title(look, total([*of_queues.values()]), now_ms), title_justify="left")
        table.box, table.pad_edge, table.header_style = None, False, "bold"
        for column in _COLUMNS:
            if is_wide or column not in _OF_WIDE:
                is_text = column in ("queue", "owner")
                table.add_column(column, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
        rows = self._that_fit(look)
        for queue, of in rows:
            cells = _cells(queue, of, of_queues[queue], now_ms)
            table.add_row(*[cell for name, cell in cells.items() if is_wide or name not in _OF_WIDE])
        if len(rows) < len(look.queues):
            table.caption = f"and {counted(len(look.queues) - len(rows), 'queue')} with less lag"
            table.caption_justify = "left"
        self._live.update(table, refresh=True)

    def _title(self, look: GroupLook, rate: QueueRate, now_ms: int) -> str:
        lag = sum(of.lag or 0 for of in look.queues.values())
        title = f"{self._group} at {clock(now_ms)}: lag {lag:,}, {counted(look.members, 'member')}"
        left = left_s(lag, rate)
        return title if not lag or left is None else f"{title}, done in {seconds(round(left * 1000))}"

    def _that_fit(self, look: GroupLook) -> list[tuple[MessageQueue, QueueLook]]:
        """All queues; where the terminal is too low, those with the most lag."""
        rows, room = list(look.queues.items()), max(self._console.height - _AROUND, 1)
        if len(rows) <= room:
            return rows
        return sorted(sorted(rows, key=lambda row: row[1].lag or 0, reverse=True)[:room])


def _cells(queue: MessageQueue, of: QueueLook, rate: QueueRate, now_ms: int) -> dict[str, Text]:
    lag, style = of.lag, ""
    if lag:
        style = "red" if not rate.consumed and rate.stored is not None else "yellow"
    behind_ms = now_ms - of.consumed_ms if lag and of.consumed_ms else 0
    return {
        "queue": Text(printable(str(queue))),
        "owner": Text(printable(of.owner or "-")),
        "committed": Text(_number(of.committed)),
        "end": Text(_number(of.end)),
        "lag": Text(_number(lag), style),
        "consumed/s": Text("-" if rate.consumed is None else f"{rate.consumed:,.1f}"),
        "stored/s": Text("-" if rate.stored is None else f"{rate.stored:,.1f}"),
        "behind": Text(seconds(behind_ms) if behind_ms > 0 else "-"),
    }


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
