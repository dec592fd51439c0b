"""`lockstep consume` with a listener that works, fails and suspends: real commands against a real broker."""

import json
import signal
from collections.abc import Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.consume.options import ConsumeOptions
from lockstep.cli.consume.workload import read_workload
from tests.commands import Lockstep, running_broker, without_progress

LINES = "".join([json.dumps({"order": order, "n": n}) + "\n" for n in range(3) for order in ("a", "b")])

TIMER_MS = 1  # a timer of a loop that counts milliseconds may be early by so much


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own; six messages of two keys in the one queue of `orders`."""
    with running_broker() as command:
        assert command("topic", "create", "orders", "--queues", "1").status == 0
        assert command("produce", "orders", "--key-field", "order", stdin=LINES).status == 0
        yield command


def calls(trace: Path, *, topic: str = "orders") -> list[dict[str, Any]]:
    """The listener calls in a trace, in the order in which they began."""
    records = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    handled = [record for record in records if record["event"] == "handled" and record["topic"] == topic]
    return sorted(handled, key=lambda record: record["begin_mono_ns"])


def took_ms(call: dict[str, Any]) -> float:
    return float(call["mono_ns"] - call["begin_mono_ns"]) / 1e6


def test_an_orderly_listener_works_on_one_message_at_a_time(lockstep: Lockstep, tmp_path: Path) -> None:
    """--work is the time of each message, --work-of that of a key, and the trace is in order for the judge."""
    trace = tmp_path / "orderly.jsonl"
    options = ("--work", "20ms", "--work-of", "a=60ms", "--trace", str(trace))
    result = lockstep("consume", "orders", "-g", "orderly", "-e", "-f", "%k", *options)
    assert (result.status, result.out) == (0, "ababab")
    done = calls(trace)
    assert [call["status"] for call in done] == ["SUCCESS"] * 6
    assert all(took_ms(call) >= (60 if call["key"] == "a" else 20) - TIMER_MS for call in done)
    assert all(earlier["mono_ns"] <= later["begin_mono_ns"] for earlier, later in pairwise(done))
    assert lockstep("trace", "check", str(trace)).status == 0


@pytest.mark.parametrize("mode", ["orderly", "by-key", "concurrent"])
def test_pops(lockstep: Lockstep, tmp_path: Path, mode: str) -> None:
    """With --pop no queue is owned; the rest is as without, and the trace is in order for the judge."""
    trace = tmp_path / "pops.jsonl"
    traced = () if mode == "concurrent" else ("--trace", str(trace))
    options = ("--pop", "--mode", mode, "--work", "20ms", *traced)
    result = lockstep("consume", "orders", "-g", f"pop-{mode}", "-e", "-f", "%k", *options)
    assert (result.status, sorted(result.out)) == (0, list("aaabbb"))
    assert "consumed 6 messages" in result.err
    if traced:
        assert len(calls(trace)) == 6
        assert lockstep("trace", "check", str(trace)).status == 0


def test_a_concurrent_listener_works_on_many(lockstep: Lockstep, tmp_path: Path) -> None:
    """With --mode concurrent all calls of a queue run at once, without a lock."""
    trace = tmp_path / "concurrent.jsonl"
    options = ("--mode", "concurrent", "--work", "3s", "--trace", str(trace))
    result = lockstep("consume", "orders", "-g", "concurrent", "-e", "-f", "%k", *options)
    assert (result.status, sorted(result.out)) == (0, list("aaabbb"))
    done = calls(trace)
    assert {(call["status"], call["ordering"]) for call in done} == {("CONSUME_SUCCESS", "none")}
    assert done[-1]["begin_mono_ns"] < min(call["mono_ns"] for call in done)
    assert lockstep("lock", "list", "-g", "concurrent", "-o", "json").rows == []


def test_by_key_a_suspended_key_waits_alone(lockstep: Lockstep, tmp_path: Path) -> None:
    """With --mode by-key each message of the suspended key comes a second time, after its time, and each key stays in
    order."""
    trace = tmp_path / "by_key.jsonl"
    options = ("--mode", "by-key", "--suspend", "a=300ms", "--trace", str(trace))
    result = lockstep("consume", "orders", "-g", "by-key", "-e", "-f", "%k%o ", *options)
    assert result.status == 0
    for key, offsets in (("a", [0, 2, 4]), ("b", [1, 3, 5])):
        assert [int(word[1:]) for word in result.out.split() if word[0] == key] == offsets
    of_a = [call for call in calls(trace) if call["key"] == "a"]
    assert [(call["offset"], call["reconsume_times"]) for call in of_a] == [(n, r) for n in (0, 2, 4) for r in (0, 1)]
    for suspended, again in pairwise(of_a):
        if again["offset"] == suspended["offset"]:
            assert again["begin_mono_ns"] - suspended["mono_ns"] >= (300 - TIMER_MS) * 1_000_000
    assert lockstep("trace", "check", str(trace)).status == 0


def test_a_suspended_queue_keeps_its_order(lockstep: Lockstep, tmp_path: Path) -> None:
    """In queue order --suspend holds all messages behind the suspended one back."""
    trace = tmp_path / "suspend.jsonl"
    options = ("--suspend", "a=50ms", "--trace", str(trace))
    result = lockstep("consume", "orders", "-g", "suspend", "-e", "-f", "%o", *options)
    assert (result.status, result.out) == (0, "012345")
    assert [call["offset"] for call in calls(trace)] == [0, 0, 1, 2, 2, 3, 4, 4, 5]


def test_a_failing_key_stops_its_queue_and_says_so(lockstep: Lockstep) -> None:
    """--fail-key fails without end: what stands behind it waits. The log has a line for each failure, no traceback."""
    with lockstep.start("consume", "orders", "-g", "stopped", "-f", "%o\n", "--fail-key", "b") as running:
        assert running.line() == "0\n"
        said = (running.error_line() for _ in count())
        failures = list(islice(filter(without_progress, said), 2))
        result = running.stop(signal.SIGINT)
    for failure in failures:
        assert "listener_failed queue=orders@broker-a:0 offset=1" in failure
        assert failure.endswith("MadeToFail: --fail-key b\n")
    assert result.out == ""


def test_a_failing_key_becomes_dead_letters(lockstep: Lockstep) -> None:
    """With a limit of retries the failing key's messages are given up, and the others are printed."""
    options = ("--fail-key", "b", "-D", "maxReconsumeTimes=0")
    result = lockstep("consume", "orders", "-g", "given-up", "-e", "-f", "%k", *options)
    assert (result.status, result.out) == (0, "aaa")
    assert result.err.count("dead_lettered") == 3


def test_what_fails_by_chance_comes_again(lockstep: Lockstep) -> None:
    """--fail 50%: every message is printed once, in order, however often its call failed. 0% never fails."""
    options = ("--fail", "50%", "-D", "suspendCurrentQueueTimeMillis=10")
    result = lockstep("consume", "orders", "-g", "chance", "-e", "-f", "%o", *options)
    assert (result.status, result.out) == (0, "012345")
    never = lockstep("consume", "orders", "-g", "never", "-e", "-f", "%o", "--fail", "0%")
    assert (never.out, "listener_failed" in never.err) == ("012345", False)


@pytest.mark.parametrize("mode", ["orderly", "by-key", "concurrent"])
def test_a_count_is_exact(lockstep: Lockstep, mode: str) -> None:
    """--count prints so many messages, whatever the mode; what was not printed is not handled."""
    group = f"counted-{mode}"
    first = lockstep("consume", "orders", "-g", group, "-c", "2", "-f", "%o ", "--mode", mode, "--work", "10ms")
    assert first.status == 0
    assert len(first.out.split()) == 2
    if mode != "concurrent":  # there, calls that had begun were sent back, and come again 10 s later
        rest = lockstep("consume", "orders", "-g", group, "-e", "-f", "%o ", "--mode", mode)
        assert sorted((first.out + rest.out).split()) == list("012345")


# Without a broker -----------------------------------------------------------------------------------------------------


def test_the_options_make_a_workload() -> None:
    """Durations, percentages and keys as they are written."""
    given = ConsumeOptions(
        topic="t", group="g", work="1m30s", work_of=["a=5ms", "b=2s"], fail="2.5%", fail_key=["x"], suspend=["y=30s"]
    )
    workload = read_workload(given)
    assert (workload.work_ms, workload.works_ms) == (90_000, {"a": 5, "b": 2000})
    assert (workload.fail_percent, workload.fail_keys) == (2.5, frozenset({"x"}))
    assert workload.suspends_ms == {"y": 30_000}
    assert read_workload(ConsumeOptions(topic="t", group="g")) == (0, {}, 0, frozenset(), {})
