"""What is delivered twice, late or in other bytes has the same report on Spark as `lockstep trace check` gives."""

from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.order import check_files
from lockstep.pipeline.audit import transform
from tests.order.test_delivered import DELIVERIES, UNREAD, WELL, handed_over, rebooted, written
from tests.pipeline.audit.audit_histories import History
from tests.pipeline.audit.test_audit import histories
from tests.pipeline.audit.test_audit_equality import assert_equal, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_delivered_twice(spark: "SparkSession") -> None:
    """The same copies are left out, within a file and between files."""
    found = [
        History(f"{told.__name__}, {name}", deliver(list(told().traces.values())))
        for told in (handed_over, rebooted)
        for name, deliver in DELIVERIES.items()
    ]
    reports = assert_equal(spark, found)
    assert all(report.copies for report in reports.values())


def test_files_of_any_bytes(spark: "SparkSession", tmp_path: Path) -> None:
    """The same lines are read, torn or broken. Spark knows a compressed file by its name."""
    changes = {**WELL, **{name: change for name, (change, *_) in UNREAD.items()}}
    folders = {name: tmp_path / str(number) for number, name in enumerate(changes)}
    expected = {}
    for name, folder in folders.items():
        folder.mkdir()
        files = written(folder, changes[name])
        if "gzip" in name:
            files[1] = files[1].rename(folder / "a.jsonl.gz")
        expected[name] = said(check_files(files))
    with transform(histories(spark, folders)) as audit:
        assert {name: said(report) for name, report in audit.reports.items()} == expected
