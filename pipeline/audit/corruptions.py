"""Clean trace files with one wrong put into them on purpose, to see that the audit finds it.

Each corruption takes the records of all files, [[record, ...], ...], and changes them. CORRUPTIONS says which violation
must be found. They look for a place where the wrong is nothing else, and raise ValueError where the traces have none.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.order import Kind

__all__ = ["CORRUPTIONS", "TORN", "Corruption", "corrupt_files"]

Record = dict[str, Any]
Files = list[list[Record]]

TORN: Final = "torn"
FAILED: Final = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK")


class Corruption(NamedTuple):
    """What is done, and what must be found: a Kind, or None for a torn line."""

    change: Callable[[Files], str]
    kind: Kind | None


def corrupt_files(source: Path, target: Path, name: str) -> str:
    """Write the JSON-lines files of the folder `source` to `target` with a corruption; says what was done.

    Raises KeyError for a name that CORRUPTIONS has not, ValueError where the traces have no place for it.
    """
    paths = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    lines = [path.read_text(encoding="utf-8").splitlines() for path in paths]
    files = [[json.loads(line) for line in file] for file in lines]
    done = CORRUPTIONS[name].change(files)
    for path, file in zip(paths, files, strict=True):
        text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in file)
        if file and file[-1].get("event") == TORN:
            text = text[: text.rindex("{")] + str(file[-1]["text"])
        goal = target / path.relative_to(source)
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_text(text, encoding="utf-8")
    return done


def _swap(files: Files) -> str:
    once = _handled_once(files)
    last: dict[tuple[Any, ...], Record] = {}
    for record in _handled(files):
        if _place(record) in once:
            owner = (*_queue(record), record["client_id"], record["period"], record["key"])
            other = last.get(owner)
            if other is not None:
                for name in ("offset", "msg_id"):
                    other[name], record[name] = record[name], other[name]
                return f"offsets {record['offset']} and {other['offset']} of {_queue(record)} swapped"
            last[owner] = record
    raise ValueError("no two messages of one key to swap")


def _drop(files: Files) -> str:
    once = _handled_once(files)
    committed: dict[tuple[Any, ...], int] = {}
    for record in _events(files, "committed"):
        committed[_queue(record)] = max(committed.get(_queue(record), 0), record["offset"])
    for file in files:
        for place, record in enumerate(file):
            below = record["event"] == "handled" and record["offset"] < committed.get(_queue(record), 0)
            if below and _place(record) in once:
                del file[place]
                return f"handling of offset {record['offset']} of {_queue(record)} dropped"
    raise ValueError("no committed message that was handled once")


def _repeat(files: Files) -> str:
    for file in files:
        for place, record in enumerate(file):
            alone = place + 1 == len(file) or file[place + 1].get("mono_ns") != record.get("mono_ns")
            if record["event"] == "handled" and record["status"] not in FAILED and alone:
                file.insert(place + 1, {**record, "begin_mono_ns": record["mono_ns"]})
                return f"offset {record['offset']} of {_queue(record)} handled again"
    raise ValueError("no message to repeat")


def _overlap(files: Files) -> str:
    last: dict[tuple[Any, ...], Record] = {}
    for record in _handled(files):
        other = last.get(_queue(record))
        if other is not None and other["client_id"] != record["client_id"] and other["host"] == record["host"]:
            record["begin_mono_ns"] = other["begin_mono_ns"] + 1
            return f"offset {record['offset']} of {_queue(record)} begun while {other['client_id']} was at work"
        last[_queue(record)] = record
    raise ValueError("no queue that changed owner on one host")


def _commit_back(files: Files) -> str:
    last: dict[tuple[Any, ...], Record] = {}
    for file in files:
        for record in file:
            if record["event"] == "committed":
                owner = (*_queue(record), record["client_id"], record["period"])
                if owner in last and last[owner]["offset"] > 0:
                    record["offset"] = last[owner]["offset"] - 1
                    return f"commit of {_queue(record)} moved back to {record['offset']}"
                last[owner] = record
    raise ValueError("no owner with two commits")


def _tear(files: Files) -> str:
    file = max(files, key=len)
    if not file:
        raise ValueError("no file with a record")
    last = file[-1]
    file.append({"event": TORN, "text": json.dumps({**last, "event": "handled"})[:60]})
    return f"a last line torn, after {len(file) - 1} whole ones"


CORRUPTIONS: Final[dict[str, Corruption]] = {
    "swap": Corruption(_swap, Kind.NONMONOTONIC_POLL),
    "drop": Corruption(_drop, Kind.LOST_WRITE),
    "repeat": Corruption(_repeat, Kind.UNEXPLAINED_REPEAT),
    "overlap": Corruption(_overlap, Kind.OVERLAP),
    "commit-back": Corruption(_commit_back, Kind.COMMIT_REGRESS),
    "tear": Corruption(_tear, None),
}


def _events(files: Files, event: str) -> Iterator[Record]:
    return (record for file in files for record in file if record["event"] == event)


def _handled(files: Files) -> list[Record]:
    """In the order of the wall clock, for that is the one that hosts share."""
    return sorted(_events(files, "handled"), key=lambda record: (record["wall_ms"], record["mono_ns"]))


def _handled_once(files: Files) -> frozenset[tuple[Any, ...]]:
    times = Counter(map(_place, _events(files, "handled")))
    return frozenset(place for place, count in times.items() if count == 1)


def _queue(record: Record) -> tuple[Any, ...]:
    return (record.get("group"), record.get("topic"), record.get("broker"), record.get("queue_id"))


def _place(record: Record) -> tuple[Any, ...]:
    return (*_queue(record), record["offset"])
