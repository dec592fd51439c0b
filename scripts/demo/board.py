"""How the demo shows itself: a live table in a terminal, else a line every few seconds, and a picture."""

import io
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scripts.demo.consumer import LOCK_LIFE_MS, TOPIC
from scripts.demo.watch import QueueRow, Snapshot

__all__ = ["Board"]

EVENTS_SHOWN = 12
LINE_EVERY_S = 3.0
EQUAL_LINE_EVERY_S = 60.0
BAR_CELLS = 10
PICTURE_COLUMNS = 92
STYLES = ("cyan", "magenta", "yellow", "green", "blue")


class Board:
    """Shows snapshots and events. `names`: consumers by process id; `dead`: the killed ones."""

    def __init__(self, console: Console, names: Mapping[int, str], dead: Mapping[int, float]) -> None:
        self.console = console
        self._names = names
        self._dead = dead
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        self._last_line, self._last_line_s = "", -LINE_EVERY_S
        self._last: tuple[Snapshot, int, float] | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def happened(self, at_s: float, text: str) -> None:
        """Show an event; `text` may have rich's markup."""
        line = f"[dim]{at_s:6.1f} s[/dim]  {text}"
        self._events.append(line)
        if self._live:
            self._live.update(self.picture(), refresh=True)
        else:
            self.console.print(line, highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot, total: int, at_s: float) -> None:
        """Show a snapshot; `total` is the number of events to come, 0 while unknown."""
        self._last = (snapshot, total, at_s)
        if self._live:
            self._live.update(self.picture(), refresh=True)
        elif at_s - self._last_line_s >= LINE_EVERY_S and total:
            line = self._line(snapshot, total)
            if line != self._last_line or at_s - self._last_line_s >= EQUAL_LINE_EVERY_S:
                self._last_line, self._last_line_s = line, at_s
                self.console.print(f"[dim]{at_s:6.1f} s[/dim]  {line}", highlight=False, soft_wrap=True)

    def save(self, path: Path) -> None:
        """Write the table as it stands now as an SVG picture."""
        canvas = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True)
        canvas.print(self.picture())
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.save_svg(str(path), title="make demo")

    def picture(self) -> RenderableType:
        """The whole board."""
        if self._last is None:
            return Text("")
        snapshot, total, at_s = self._last
        table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=False, padding=(0, 2, 0, 0))
        for name, width in (("queue", 9), ("owner", 10), ("lock age", 17)):
            table.add_column(name, width=width)
        for name, width in (("lag", 9), ("handled/s", 9), ("handled", 9)):
            table.add_column(name, justify="right", width=width)
        for row in snapshot.rows:
            table.add_row(*self._cells(row))
        events = [Text.from_markup(line) for line in self._events]
        return Group(table, Text(), self._progress(snapshot, total, at_s), Text(), *events)

    def owner(self, pid: int) -> str:
        """A consumer's name in its color."""
        if not pid:
            return "[dim]none[/dim]"
        name = self._names.get(pid, str(pid))
        if pid in self._dead:
            return f"[bold red]{name} (killed)[/bold red]"
        return f"[{STYLES[(ord(name[0]) - ord('A')) % len(STYLES)]}]{name}[/]"

    def _cells(self, row: QueueRow) -> tuple[RenderableType, ...]:
        lag = f"[red]{row.lag:,}[/red]" if row.owner_pid in self._dead and row.lag else f"{row.lag:,}"
        return (
            f"{TOPIC}:{row.queue_id}",
            Text.from_markup(self.owner(row.owner_pid)),
            self._lock_age(row),
            Text.from_markup(lag),
            f"{row.rate:,.0f}",
            f"{row.handled:,}",
        )

    def _lock_age(self, row: QueueRow) -> Text:
        """A bar that is full when the lock expires."""
        if not row.owner_pid or row.lock_age_ms is None:
            return Text(f"{'─' * BAR_CELLS}      -", style="dim")
        cells = min(BAR_CELLS, round(BAR_CELLS * row.lock_age_ms / LOCK_LIFE_MS))
        style = "red" if row.owner_pid in self._dead else "green"
        return Text.assemble(
            ("━" * cells, style), ("─" * (BAR_CELLS - cells), "dim"), f" {row.lock_age_ms / 1000:4.1f} s"
        )

    @staticmethod
    def _progress(snapshot: Snapshot, total: int, at_s: float) -> Text:
        of_total = f" of {total:,}" if total else ""
        return Text.assemble(
            (f"{at_s:6.1f} s", "dim"),
            f"  sent {snapshot.stored:,}{of_total}, handled ",
            (f"{snapshot.handled:,}", "bold"),
            f", {snapshot.rate:,.0f} a second",
        )

    def _line(self, snapshot: Snapshot, total: int) -> str:
        owners: dict[int, list[int]] = {}
        for row in snapshot.rows:
            owners.setdefault(row.owner_pid, []).append(row.queue_id)
        by_name = sorted(owners.items(), key=lambda owned: self._names.get(owned[0], ""))
        held = "  ".join(f"{self.owner(pid)} {' '.join(map(str, queues))}" for pid, queues in by_name)
        progress = f"sent {snapshot.stored:,} of {total:,}  handled {snapshot.handled:,}  lag {snapshot.lag:,}"
        return f"{progress}  queues: {held}"
