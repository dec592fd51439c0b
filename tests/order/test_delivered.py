"""Traces as log shippers and editors deliver them: parts twice or out of order, and bytes that no writer wrote."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lockstep.order import Kind, OrderReport, TraceFile, Verdict, check_files, check_traces
from lockstep.order.story import StoryOf, story
from tests.order.stories import Records, Story, kinds
from tests.rows import by_row


def handed_over() -> Story:
    """A producer, two owners of a queue one after the other, and all closed."""
    one = Story()
    one.sent(*range(6))
    one.own("a", 1, 0)
    one.handle("a", 1, 0, 1, 2)
    one.commit("a", 1, 3)
    one.record("a", "dropped", period=1, why="rebalance")
    one.record("a", "closed")
    one.own("b", 1, 3)
    one.handle("b", 1, 3, 4, 5)
    one.commit("b", 1, 6)
    for client in ("b", "producer"):
        one.record(client, "closed")
    return one


def rebooted() -> Story:
    """As `handed_over`; b is a on the next boot of its machine, and writes to the same file."""
    one = handed_over()
    after = one.traces.pop("b")
    for name, boot_ns, trace in (("first", 0, one.traces["a"]), ("second", 2_000_000_000, after)):
        for record in trace:
            record |= {"machine": "m", "boot": name, "mono_ns": record["mono_ns"] - boot_ns}
            if "begin_mono_ns" in record:
                record["begin_mono_ns"] -= boot_ns
    one.traces["a"] += after
    return one


# Delivered twice -----------------------------------------------------------------------------------------------

Delivery = Callable[[list[Records]], list[Records]]
DELIVERIES: Final[dict[str, Delivery]] = {
    "each file under two names": lambda traces: [*traces, *traces],
    "each file three times": lambda traces: [*traces, *traces, *traces],
    "each line twice": lambda traces: [[one for one in trace for _ in "ab"] for trace in traces],
    "each file again behind itself": lambda traces: [trace + trace for trace in traces],
    "half of each file again": lambda traces: [trace[: len(trace) // 2] + trace for trace in traces],
    "half of each file in another": lambda traces: [*traces, *(trace[len(trace) // 2 :] for trace in traces)],
    "the last lines before the first": lambda traces: [trace[4:] + trace for trace in traces],
    "blocks again, as after a crash of the shipper": lambda traces: [
        [one for start in range(0, len(trace), 3) for one in trace[max(start - 2, 0) : start + 3]] for trace in traces
    ],
    "all in one file, twice": lambda traces: [[one for _ in "ab" for trace in traces for one in trace]],
}  # fmt: skip


def said(report: OrderReport) -> tuple[Any, ...]:
    counts = (report.sent, report.handled, report.attempts, report.lost, report.duplicates, report.events)
    return report.verdict, kinds(report), report.undecided_counts, report.handovers, counts


@pytest.mark.parametrize("told", [handed_over, rebooted])
@by_row("delivery", DELIVERIES)
def test_what_is_delivered_twice_counts_once(delivery: str, told: Callable[[], Story]) -> None:
    """The same report as of the traces themselves, and the number of copies in it."""
    traces = list(told().traces.values())
    delivered = DELIVERIES[delivery](traces)
    report, once = check_traces(delivered), check_traces(traces)
    assert (once.verdict, once.copies) == (Verdict.IN_ORDER, 0)
    assert said(report) == said(once)
    assert report.copies == sum(map(len, delivered)) - sum(map(len, traces)) > 0
    assert ("delivered twice", f"{report.copies:,}") in report.rows()


@by_row("delivery", DELIVERIES)
def test_copies_hide_no_violation(delivery: str) -> None:
    """A message that was handled twice, a nanosecond apart."""
    one = handed_over()
    again = {**one.traces["b"][3], "mono_ns": one.traces["b"][3]["mono_ns"] + 1}
    one.traces["b"].insert(4, again | {"begin_mono_ns": again["mono_ns"]})
    report = check_traces(DELIVERIES[delivery](list(one.traces.values())))
    assert Kind.UNEXPLAINED_REPEAT in kinds(report)


def test_lines_in_any_order_are_the_same_history() -> None:
    """The time of a record decides, not its place in the file."""
    traces = list(handed_over().traces.values())
    lines = [one for trace in traces for one in trace]
    random.Random(1).shuffle(lines)
    assert said(check_traces([lines])) == said(check_traces(traces))


def test_two_processes_with_one_client_id_are_no_copies() -> None:
    """Also beside a copy of one of them."""
    one = handed_over()
    other = [record | {"mono_ns": record["mono_ns"] + 1, "period": 2} for record in one.traces["a"]]
    assert Kind.SHARED_CLIENT_ID in kinds(check_traces([*one.traces.values(), other]))
    assert Kind.SHARED_CLIENT_ID in kinds(check_traces([*one.traces.values(), other, one.traces["a"]]))


def test_equal_records_without_a_monotonic_clock_are_no_copies() -> None:
    """Two calls may end in one millisecond."""
    one = handed_over()
    for record in one.traces["b"]:
        record.pop("begin_mono_ns", None)
        del record["mono_ns"]
    one.traces["b"].insert(3, one.traces["b"][2])
    assert check_traces(list(one.traces.values())).copies == 0


def test_a_restart_that_is_delivered_twice_is_one() -> None:
    """The second record of it would begin a third store."""
    one = Story()
    one.sent(0, 1)
    one.record("broker", "broker_restarted")
    one.sent(0, 1)
    one.own("a", 1, 0)
    one.handle("a", 1, 0, 1)
    traces = list(one.traces.values())
    report = check_traces([*traces, one.traces["broker"]])
    assert (said(report), report.emptied) == (said(check_traces(traces)), 2)


def test_a_story_tells_a_copy_once(tmp_path: Path) -> None:
    """As the judge sees it."""
    lines = b"".join(encoded(record) for record in handed_over().traces["a"])
    for name in "ab":
        (tmp_path / name).write_bytes(lines)
    assert len(list(story([tmp_path / "a", tmp_path / "b"], StoryOf()))) == len(lines.splitlines())


# Bytes ---------------------------------------------------------------------------------------------------------


def encoded(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def written(folder: Path, change: Callable[[bytes], bytes]) -> list[Path]:
    """The files of `handed_over`, that of a with changed bytes."""
    paths = []
    for client, trace in handed_over().traces.items():
        text = b"".join(encoded(record) for record in trace)
        paths.append(folder / f"{client}.jsonl")
        paths[-1].write_bytes(change(text) if client == "a" else text)
    return paths


def first_line_is(line: bytes) -> Callable[[bytes], bytes]:
    return lambda text: line + text[text.index(b"\n") :]


def line_3_is(line: bytes) -> Callable[[bytes], bytes]:
    return lambda text: b"\n".join([*text.split(b"\n")[:2], line, *text.split(b"\n")[3:]])


WELL: Final[dict[str, Callable[[bytes], bytes]]] = {
    "a mark of UTF-8 at its start": lambda text: b"\xef\xbb\xbf" + text,
    "lines that end as in Windows": lambda text: text.replace(b"\n", b"\r\n"),
    "both": lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    "an empty line at its end": lambda text: text + b"\r\n",
    "no end of its last line": lambda text: text[:-1],
    "two records on a line": lambda text: text.replace(b"}\n", b"}", 1),
    "all records on a line": lambda text: text.replace(b"}\n", b"}"),
    "compressed by gzip": gzip.compress,
}


@by_row("how", WELL)
def test_a_file_that_is_written_otherwise_is_read_as_well(how: str, tmp_path: Path) -> None:
    """No record of it is missing."""
    report = check_files(written(tmp_path, WELL[how]))
    assert said(report) == said(handed_over().report())
    assert (report.torn_lines, report.broken_lines) == (0, 0)


UNREAD: Final[dict[str, tuple[Callable[[bytes], bytes], int, str]]] = {
    "a first line that is no JSON": (first_line_is(b"{nothing"), 1, "not JSON"),
    "a first line that is torn": (first_line_is(b'{"event":"acqui'), 1, "not JSON"),
    "only a first line": (lambda _: b'{"event":"acqui', 1, "not JSON"),
    "another text": (first_line_is(b"\xe4\xf6\xfc"), 1, "not UTF-8"),
    "UTF-16": (lambda text: text.decode().encode("utf-16"), 1, "UTF-16, and a trace is UTF-8"),
    "UTF-16 without a mark": (lambda text: text.decode().encode("utf-16-be"), 1, "UTF-16, and a trace is UTF-8"),
    "a line in its middle": (line_3_is(b'{"event":"handled","wall_ms":1'), 3, "not JSON"),
    "an empty line in its middle": (line_3_is(b""), 3, "an empty line"),
    "NUL bytes at its end": (lambda text: text + bytes(4096), 10, "NUL bytes, as a power cut leaves them"),
    "NUL bytes before a record": (lambda text: bytes(99) + text, 1, "NUL bytes, as a power cut leaves them"),
    "the end of a line at its end": (lambda text: text + b'"offset":3}\n', 10, "not JSON"),
}


@by_row("how", UNREAD)
def test_a_line_that_cannot_be_read_leaves_it_open(how: str, tmp_path: Path) -> None:
    """No torn last line: what the missing record would explain is undecided, and file and line are named."""
    change, number, why = UNREAD[how]
    report = check_files(written(tmp_path, change))
    assert (report.verdict, kinds(report), report.torn_lines) == (Verdict.UNDECIDED, [], 0), report.lines()
    line = report.broken[0]
    assert (Path(line.path).name, line.number, line.why[: len(why)]) == ("a.jsonl", number, why)
    assert "is no record" in report.reason() or "are no record" in report.reason()


def test_two_calls_at_once_are_found_beside_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    """No record that is missing explains them."""
    one = handed_over()
    one.traces["b"][2]["begin_mono_ns"] = one.traces["a"][2]["mono_ns"] - 1
    for client, trace in one.traces.items():
        (tmp_path / client).write_bytes(b"".join([*map(encoded, trace), b"nothing\n", encoded(trace[-1])]))
    report = check_files([tmp_path / client for client in one.traces])
    assert (report.verdict, kinds(report)) == (Verdict.NOT_IN_ORDER, [Kind.OVERLAP])


def test_damaged_gzip_data_is_an_error_with_its_file(tmp_path: Path) -> None:
    """What is missing may be any number of records."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(map(encoded, handed_over().traces["a"])))[:-20])
    with pytest.raises(OSError, match="its gzip data is damaged") as caught:
        list(TraceFile(path))
    assert caught.value.filename == str(path)
