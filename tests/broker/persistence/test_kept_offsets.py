"""Offsets in the file of a data directory: which are loaded, which are left out, and that none is lost."""

import json
from pathlib import Path
from typing import Any

from tests.broker.persistence.kept_broker import Kept, kept

GOOD = {"T@G": {"0": 7, "1": -1}, "gone@G": {"3": 9}, "%RETRY%G@G": {"0": 2}}
BAD = {"no topic@G": {"0": 1}, "T@no group": {"0": 1}, "T": {"0": 1}, "T@H": {"-1": 1, "2": -2, "3": 4}}


async def opened(folder: Path, table: dict[str, Any], **settings: Any) -> tuple[Kept, dict[tuple[str, str], Any]]:
    """A broker over a file with these offsets, and what it then has."""
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    async with kept(folder, **settings) as broker:
        return broker, broker.broker.catalog.offsets.all()


async def test_offsets_that_no_commit_could_have_stored_are_left_out(tmp_path: Path) -> None:
    """Impossible names and numbers of a damaged or foreign file are counted in one log event. The others are loaded,
    also those of unknown topics."""
    broker, offsets = await opened(tmp_path / "data", GOOD | BAD)
    assert offsets == {
        ("T", "G"): {0: 7, 1: -1},
        ("gone", "G"): {3: 9},
        ("%RETRY%G", "G"): {0: 2},
        ("T", "H"): {3: 4},
    }
    left_out = [fields for _, event, fields in broker.log.events if event == "offsets_left_out"]
    assert left_out == [{"file": "consumerOffset.json", "count": 5, "kept": 5}]


async def test_no_offset_is_lost_because_a_file_has_more_than_may_be_added(tmp_path: Path) -> None:
    """After a lowered limit, or from a large broker of Apache's, all are loaded, and a log event says so."""
    table = {"T@G": {str(number): number for number in range(4)}}
    broker, offsets = await opened(tmp_path / "data", table, offset_entries_max=2)
    assert offsets == {("T", "G"): {0: 0, 1: 1, 2: 2, 3: 3}}
    over = [fields for _, event, fields in broker.log.events if event == "offsets_over_limit"]
    assert over == [{"file": "consumerOffset.json", "count": 4, "offset_entries_max": 2}]
