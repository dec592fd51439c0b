"""Whether a file that an option names can be written, asked before long work and not after it."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["why_no_folder", "why_unwritable"]

_OTHERS_MAY_READ: Final = 0o644


def why_unwritable(path: str | Path, *, makes_folders: bool = False) -> str:
    """Why a file cannot be written, as the operating system says it; empty if it can.

    A file that is there is not changed. One that is not there is made and deleted again.

    Args:
        path: The file.
        makes_folders: Its folders will be made, if they are missing.
    """
    try:
        _try_file(Path(path), makes_folders=makes_folders)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def why_no_folder(path: str | Path) -> str:
    """Why files cannot be written into a folder, which will be made if it is missing; empty if they can."""
    try:
        _try_folder(Path(path))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _try_file(path: Path, *, makes_folders: bool) -> None:
    """Raises OSError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        # A link to a file that is not there is followed.
        _try_new(path.resolve(), makes_folders=makes_folders)
        return
    if stat.S_ISDIR(mode):
        raise _error(errno.EISDIR)
    if stat.S_ISREG(mode):
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    elif not os.access(path, os.W_OK):
        # A pipe is not opened: that would wait for its reader, and end it.
        raise _error(errno.EACCES)


def _try_new(path: Path, *, makes_folders: bool) -> None:
    """Raises OSError."""
    if makes_folders and not path.parent.exists():
        _try_folder(path.parent)
        return
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OTHERS_MAY_READ))
    path.unlink()


def _try_folder(path: Path) -> None:
    """Raises OSError."""
    path = path.resolve()
    while not path.exists():
        path = path.parent
    if not path.is_dir():
        raise _error(errno.ENOTDIR)
    if not os.access(path, os.W_OK | os.X_OK):
        raise _error(errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
