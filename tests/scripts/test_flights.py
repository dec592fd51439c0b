"""Flights become events in the order of time, keyed by aircraft, with the counts the data is known for."""

import zipfile
from pathlib import Path

import pytest

from scripts.flights import FLIGHTS_ZIP, FlightCounts, read_flights

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
ROWS = (
    # departs 23:50 local with 25 minutes delay: past midnight, and later than the next row's departure
    "2013,1,1,15,2350,25,444,430,14,B6,1,N1,JFK,PSE,190,1617,23,50,2013-01-02T04:00:00Z",
    "2013,1,2,2,2359,3,437,445,-8,B6,2,N2,JFK,BQN,192,1576,23,59,2013-01-02T04:00:00Z",
    "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N1,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z",
    "2013,1,1,NA,600,NA,NA,901,NA,B6,125,NA,JFK,FLL,NA,1069,6,0,2013-01-01T11:00:00Z",
    "2013,1,1,2016,1930,46,NA,2220,NA,EV,4204,N3,EWR,OKC,NA,1325,19,30,2013-01-02T00:00:00Z",
    "2013,1,1,1939,1840,59,29,2151,NA,9E,3325,N4,JFK,DFW,NA,1391,18,40,2013-01-01T23:00:00Z",
)


def archive(folder: Path, *rows: str) -> Path:
    """A flights.csv.zip with these rows."""
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("flights.csv", "\n".join((HEADER, *rows)) + "\n")
    return path


def test_events_are_in_order_of_time(tmp_path: Path) -> None:
    """A departure is UTC hour, minute and delay; an arrival adds the air time; cancelled stands at its schedule."""
    events = read_flights(archive(tmp_path, *ROWS)).events
    assert [(event.at, event.kind, event.key) for event in events] == [
        ("2013-01-01T11:00Z", "cancelled", "B6125"),
        ("2013-01-01T21:30Z", "cancelled", "N1"),
        ("2013-01-02T00:39Z", "departed", "N4"),
        ("2013-01-02T01:16Z", "departed", "N3"),
        ("2013-01-02T05:02Z", "departed", "N2"),
        ("2013-01-02T05:15Z", "departed", "N1"),
        ("2013-01-02T05:29Z", "diverted", "N4"),
        ("2013-01-02T08:14Z", "arrived", "N2"),
        ("2013-01-02T08:25Z", "arrived", "N1"),
    ]


def test_outcomes_are_counted(tmp_path: Path) -> None:
    """Every flight has one outcome; a diverted flight arrived, elsewhere."""
    counts = read_flights(archive(tmp_path, *ROWS)).counts
    assert counts == FlightCounts(flights=6, departed=4, arrived=3, diverted=1, never_arrived=1, cancelled=2)


def test_ties_go_by_place_in_the_file(tmp_path: Path) -> None:
    """Two events of one minute always come in the same order."""
    twin = ROWS[0].replace("N1", "N9")
    assert [event.key for event in read_flights(archive(tmp_path, ROWS[0], twin)).events] == ["N1", "N9", "N1", "N9"]
    assert [event.key for event in read_flights(archive(tmp_path, twin, ROWS[0])).events] == ["N9", "N1", "N9", "N1"]


def test_a_taste_is_the_first_flights(tmp_path: Path) -> None:
    """A limit counts flights, not events."""
    assert read_flights(archive(tmp_path, *ROWS), limit=2).counts.flights == 2


@pytest.mark.long
@pytest.mark.skipif(not FLIGHTS_ZIP.exists(), reason="the flights are not here; `make demo` fetches them")
def test_the_whole_year_has_its_known_counts() -> None:
    """336,776 flights, and the outcomes that anybody can count in the data."""
    flights = read_flights()
    assert flights.counts == FlightCounts(
        flights=336_776, departed=328_521, arrived=328_063, diverted=717, never_arrived=458, cancelled=8_255
    )
    assert len(flights.events) == 328_521 + 328_063 + 8_255
