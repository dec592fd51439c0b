"""The flights as events made by Spark: `make pipeline` sends the same events as the demo."""

import io
import zipfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.pipeline.jobs.publish import EventColumns, InputFormat, read_raw, transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "QUERY", "flight_events", "unpack"]

QUERY = Path(__file__).with_name("flights.sql")
COLUMNS = EventColumns(
    key="key",
    order_by=("minute", "row", "stage"),
    value=("number", "event", "at", "flight", "from", "to"),
    tags="event",
)


def unpack(archive: Path, folder: Path, limit: int | None = None) -> Path:
    """Extract flights.csv, or its first `limit` flights: Spark does not read zip files."""
    path = folder / "flights.csv"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as member, path.open("w") as out:
        lines = io.TextIOWrapper(member, encoding="utf-8")
        out.writelines(islice(lines, None if limit is None else limit + 1))
    return path


def flight_events(spark: "SparkSession", flights: Path) -> "DataFrame":
    """Every departure, arrival and cancellation, keyed by aircraft, in order of time."""
    raw = read_raw(spark, [str(flights)], InputFormat.CSV, options={"nullValue": "NA"}, row_column="row")
    return transform(raw, COLUMNS, query=QUERY.read_text(encoding="utf-8"))
