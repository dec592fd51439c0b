"""Exit statuses that the commands share."""

from typing import Final

__all__ = ["status_of"]

# 128 + 13: what a shell reports of a program that SIGPIPE ended.
_SIGPIPE_STATUS: Final = 141


def status_of(ended: SystemExit) -> int:
    """The status of a command that its library ended.

    click ends a command whose reader has closed stdout with 1, which says that something failed. As SIGPIPE it is 141.
    """
    if isinstance(ended.__context__, BrokenPipeError):
        return _SIGPIPE_STATUS
    return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
