"""What only reports never stops what it reports on: the stream of logs, notes and progress."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.remoting.host.report_stream import ReportStream
from lockstep.remoting.logs import client_log

LINE = "x" * 99 + "\n"


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """A reading and a writing end; a test that closes one takes it out."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def test_lines_are_written_as_they_come(pipe: list[int]) -> None:
    """Also characters that no encoding has."""
    stream = ReportStream(pipe[1])
    assert stream.write("one\n") == 4
    stream.write("a \udcff\n")
    assert os.read(pipe[0], 100) == b"one\na \\udcff\n"


def test_without_a_reader_lines_are_dropped_and_counted(pipe: list[int]) -> None:
    """`program 2>&1 | head -1`: no call raises."""
    stream = ReportStream(pipe[1])
    os.close(pipe.pop(0))
    for _ in range(3):
        stream.write(LINE)
    assert stream.dropped_lines == 3
    assert stream.take_dropped() == 0  # nobody could read the number


def test_a_reader_that_stands_still_delays_nothing(pipe: list[int]) -> None:
    """What a full pipe does not take is dropped; once there is room, the number can be said, and said once."""
    stream = ReportStream(pipe[1])
    for _ in range(2000):  # 200 KB; a pipe of Linux holds 64 KiB
        stream.write(LINE)
    dropped = stream.dropped_lines
    assert 1000 < dropped < 2000
    read = b""
    while len(read) < (2000 - dropped) * len(LINE):
        read += os.read(pipe[0], 1 << 16)
    assert stream.take_dropped() == dropped
    assert stream.take_dropped() == 0
    stream.write("again\n")
    assert os.read(pipe[0], 1 << 16).endswith(b"again\n")


def test_what_follows_a_line_cut_short_begins_a_line(pipe: list[int]) -> None:
    """A long line of which a pipe took a part."""
    stream = ReportStream(pipe[1])
    stream.write("y" * 200_000 + "\n")
    os.set_blocking(pipe[0], False)
    taken = b""
    while part := _read_now(pipe[0]):
        taken += part
    assert taken == b"y" * len(taken)
    stream.write("next\n")
    assert _read_now(pipe[0]) == b"\nnext\n"


def _read_now(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_stops_nothing() -> None:
    """Lines are dropped while it is full."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    stream = ReportStream(descriptor)
    stream.write(LINE)
    os.close(descriptor)
    assert stream.dropped_lines == 1


CLOSED = """
import os, sys
os.close(0), os.close(1), os.close(2)
from lockstep.remoting.host.report_stream import open_reports
open_reports()
first = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("to nobody", file=sys.stderr)
os.write(first, str(first).encode())
"""


def test_no_file_gets_the_number_of_a_closed_stderr(tmp_path: Path) -> None:
    """`2>&-`: what the program opens first is not what its errors are written to."""
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", CLOSED, str(out)], check=True, timeout=60)
    assert int(out.read_text(encoding="utf-8")) > 2


def test_a_log_of_the_application_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The library's own log says so once."""

    class Broken:
        def info(self, event: str, **fields: object) -> None:
            raise OSError(28, "No space left on device")

        debug = warning = error = info

    log = client_log(Broken())
    log.info("lock_granted", queue="T@b:0")
    log.error("send_failed")
    (record,) = caplog.records
    assert record.getMessage() == "log_failed error=OSError: [Errno 28] No space left on device"
