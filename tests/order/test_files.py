"""Trace files as they are found: torn lines, strange records, pipes, a file named twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.order import Kind, TraceFile, Verdict, check_files
from lockstep.order.story import StoryOf, story
from tests.order.stories import Story, kinds


def written(record: dict[str, Any], boot: str | None = None, **fields: Any) -> bytes:
    """A line as `TraceWriter` writes it: its fields in this order."""
    clock = {"v": 2, "machine": "m", "boot": boot} if boot else {}
    first = {name: record[name] for name in ("event", "wall_ms", "mono_ns")}
    return json.dumps({**first, **clock, **record, **fields}, separators=(",", ":")).encode() + b"\n"


def whole() -> list[dict[str, Any]]:
    """The records of one client that handles three messages in order."""
    one = Story()
    one.own("a", 1, 0)
    one.handle("a", 1, 0, 1, 2)
    return one.traces["a"]


def test_the_only_record_of_a_boot_may_stand_behind_a_torn_line(tmp_path: Path) -> None:
    """The torn line names the boot before; that hides no clock from the first pass."""
    records = whole()
    call = written(records[-1], "two")
    path = tmp_path / "a.jsonl"
    before = [written(record, "one") for record in records]
    path.write_bytes(b"".join([*before, call, call, call[:230], written(records[0], "three", period=3)]))
    report = check_files([path])
    assert (report.torn_lines, report.broken_lines, report.attempts, report.copies) == (1, 0, 4, 1)


@pytest.mark.parametrize("boot", [None, "one"])
def test_both_passes_see_the_same_clocks(tmp_path: Path, boot: str | None) -> None:
    """A line of another host that is no record, a record without a host, one without a monotonic clock."""
    records = whole()
    call = records[-1]
    hostless = {name: value for name, value in call.items() if name != "host"}
    timeless = {name: value for name, value in call.items() if name != "mono_ns"}
    who = {name: value for name, value in json.loads(written(call, boot)).items() if name not in timeless}
    strange = [
        written(hostless, boot, topic=None),
        written(hostless, boot),
        written(call, boot),
        json.dumps({"event": "handled", **who, **timeless} | {"mono_ns": None}, separators=(",", ":")).encode() + b"\n",
        written(call, boot, host="other", topic=None),
        written(call, boot, host="other"),
    ]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join([*(written(record, boot) for record in records), *strange]))
    report = check_files([path])
    assert (report.broken_lines, report.attempts, report.copies) == (2, 6, 1)


def test_null_means_absent(tmp_path: Path) -> None:
    """An optional field that is null, a replaced owner's record without a key: neither ends the check."""
    one = Story()
    one.own("a", 1, 0)
    one.handle("a", 1, 0, 1, 2)
    one.commit("a", 1, 2)
    one.own("b", 1, 2)
    one.handle("b", 1, 2, 3)
    late = one.handle("a", 1, 3)[0]
    del late["key"]
    for record in one.traces["a"]:
        record |= {"epoch": None, "reconsume_times": None}
    for record in one.traces["b"]:
        record |= {"period": None, "begin_mono_ns": None, "epoch": 2}
    for client, trace in one.traces.items():
        (tmp_path / client).write_text("".join(json.dumps(record) + "\n" for record in trace), encoding="utf-8")
    for report in (one.report(), check_files([tmp_path / "a", tmp_path / "b"])):
        assert (kinds(report), report.broken_lines) == ([Kind.STALE_REPEAT], 0)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """It can be read once, and the judge reads twice: it would see an empty trace."""
    pipe, end = os.pipe()
    os.close(end)
    try:
        with pytest.raises(OSError, match="a pipe cannot be") as caught:
            check_files([f"/dev/fd/{pipe}"])
        assert caught.value.filename == f"/dev/fd/{pipe}"
    finally:
        os.close(pipe)


def test_a_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    """Nothing is told of a file that was never opened: Python 3.13 does so always, 3.11 in its development mode."""
    nowhere = str(tmp_path / "nowhere")
    program = f"from pathlib import Path\nfrom lockstep.order import TraceFile\nlist(TraceFile(Path({nowhere!r})))"
    command = [sys.executable, "-X", "dev", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Exception ignored" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("FileNotFoundError")


def test_a_file_that_grows_is_read_up_to_its_first_size(tmp_path: Path) -> None:
    """A process writes on between two passes: both see the same records, and no half of one."""
    path = tmp_path / "a.jsonl"
    lines = [written(record) for record in whole()]
    path.write_bytes(b"".join(lines[:-1]))
    trace = TraceFile(path)
    assert len(list(trace)) == len(lines) - 1
    with path.open("ab") as file:
        file.write(lines[-1] + lines[-1][:20])
    assert (len(list(trace)), trace.torn_lines, trace.broken_lines) == (len(lines) - 1, 0, 0)
    assert len(list(TraceFile(path))) == len(lines)


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    """As with `*.jsonl a.jsonl`: the second reading is no second process."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(written(record) for record in whole()))
    report = check_files([path, f"{tmp_path}/./a.jsonl"])
    assert (report.verdict, report.attempts) == (Verdict.IN_ORDER, 3)
    assert len(list(story([path, path], StoryOf()))) == 5
