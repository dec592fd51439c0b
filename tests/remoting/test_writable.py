"""A file that cannot be written is found before the work whose result it would hold."""

import errno
import os
from pathlib import Path

import pytest

from lockstep.remoting.host.writable import why_no_folder, why_unwritable

MISSING, IS_FOLDER, NO_FOLDER = (os.strerror(number) for number in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file, a folder, a link to nothing, and a pipe."""
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "behind")
    (tmp_path / "far").symlink_to(tmp_path / "none" / "behind")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "why", "why_with_folders"),
    [
        ("file", "", ""),
        ("new", "", ""),
        ("link", "", ""),
        ("pipe", "", ""),
        ("folder", IS_FOLDER, IS_FOLDER),
        ("none/new", MISSING, ""),
        ("none/deeper/new", MISSING, ""),
        ("far", MISSING, ""),
        ("file/new", NO_FOLDER, NO_FOLDER),
        ("file/deeper/new", NO_FOLDER, NO_FOLDER),
        ("x" * 300, os.strerror(errno.ENAMETOOLONG), os.strerror(errno.ENAMETOOLONG)),
    ],
)
def test_what_stands_in_the_way_of_a_file(place: Path, name: str, why: str, why_with_folders: str) -> None:
    """The operating system's words say it, and nothing is changed or left behind."""
    before = sorted(place.rglob("*"))
    assert why_unwritable(place / name) == why
    assert why_unwritable(str(place / name), makes_folders=True) == why_with_folders
    assert sorted(place.rglob("*")) == before
    assert (place / "file").read_text(encoding="utf-8") == "kept"


def test_an_empty_name_is_no_file() -> None:
    """Neither a file nor a folder has it."""
    assert why_unwritable("") != ""


def test_a_file_of_the_standard_streams_is_writable() -> None:
    """As `--report /dev/stdout` names it."""
    assert why_unwritable("/dev/null") == ""
    reading, writing = os.pipe()
    try:
        assert why_unwritable(f"/dev/fd/{writing}") == ""
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", ""),
        ("folder", ""),
        ("none/deeper", ""),
        ("file", NO_FOLDER),
        ("file/deeper", NO_FOLDER),
        ("pipe", NO_FOLDER),
    ],
)
def test_what_stands_in_the_way_of_a_folder(place: Path, name: str, why: str) -> None:
    """A missing folder can be made; a file cannot be one."""
    before = sorted(place.rglob("*"))
    assert why_no_folder(place / name) == why
    assert sorted(place.rglob("*")) == before
