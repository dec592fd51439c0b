"""stderr of a program: what only reports never stops or delays the work that it reports on."""

import io
import os
import select
import sys
from typing import Final

__all__ = ["ReportStream", "open_reports"]

_STDERR: Final = 2
# POSIX: a pipe that is ready to be written takes PIPE_BUF bytes at once, on Linux 4,096.
_PIECE_BYTES: Final = 4096


class ReportStream(io.TextIOBase):
    """Writes what the file takes at once; the rest is dropped and counted.

    A reader that has gone, a full disk and a reader that stands still are alike: the program goes on.

    Args:
        descriptor: The open file. It stays open, and its flags stay as they are: others may share it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._in_line = False  # the last line that was written lacks its end
        self.dropped_lines = 0

    @property
    def encoding(self) -> str:  # type: ignore[override] # a text file has one, io.TextIOBase has None
        return "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def takes(self) -> bool:
        """Whether the file takes a line now. A file without a reader does not."""
        return any(events & select.POLLOUT and not events & select.POLLERR for _, events in self._ready.poll(0))

    def write(self, text: str) -> int:
        """Write a text, or as much of it as the file takes at once. Returns its length, whatever was written."""
        content = text.encode("utf-8", "backslashreplace")
        if self.dropped_lines and self._in_line:
            content = b"\n" + content
        at = 0
        try:
            while at < len(content) and self.takes():
                at += os.write(self._descriptor, content[at : at + _PIECE_BYTES])
        except OSError:
            # No reader, or no room: what is left is dropped below.
            pass
        if at:
            self._in_line = content[at - 1] != 0x0A
        if at < len(content):
            self.dropped_lines += max(content.count(b"\n", at), 1)
        return len(text)

    def take_dropped(self) -> int:
        """How many lines were dropped since the last call, once the file takes lines again; 0 before."""
        if not self.dropped_lines or not self.takes():
            return 0
        dropped, self.dropped_lines = self.dropped_lines, 0
        return dropped


def open_reports() -> ReportStream:
    """Make `sys.stderr` a ReportStream, at the begin of a program.

    Descriptors 0 to 2 that the caller closed lead to /dev/null from now on. A socket with the number of stderr would be
    written to by all that reports, and uvloop aborts the process for it.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(free, True)
    os.close(free)
    stream = ReportStream(_STDERR)
    sys.stderr = stream
    return stream
