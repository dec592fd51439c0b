"""The harness itself: what is missing fails or skips, and evidence of disorder is seen."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.order import check_traces
from tests.interop.harness import installed
from tests.interop.stories.java_story import record

TOPIC = "t"


@pytest.mark.parametrize(
    ("part", "ci", "outcome"),
    [
        ("node", "true", pytest.fail.Exception),
        ("node", "", pytest.skip.Exception),
        ("rust5", "true", pytest.skip.Exception),
    ],
)
def test_a_missing_client_fails_in_ci_and_skips_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, ci: str, outcome: type[BaseException]
) -> None:
    """With the reason that the set-up left. Rust's is not made in CI."""
    monkeypatch.setattr(installed, "BUILD", tmp_path)
    monkeypatch.setenv("CI", ci)
    (tmp_path / part).mkdir()
    (tmp_path / part / "missing.txt").write_text("none here\n", encoding="utf-8")
    with pytest.raises(outcome, match=f"{part}: none here"):
        installed.require(part)
    (tmp_path / part / ".ready").touch()
    assert installed.require(part) == tmp_path / part


def java(event: str, at: int, client: str = "a", **fields: Any) -> dict[str, Any]:
    """An event as OrderlyConsumer prints it."""
    who = {"event": event, "wall_ms": at, "t_ns": at * 1_000_000, "clientId": client, "group": "g"}
    return {**who, "topic": TOPIC, "broker": "b", "queueId": 0, "period": 1, **fields}


def handled(at: int, offset: int, key: str = "k", client: str = "a") -> dict[str, Any]:
    times = {"begin_ns": (at - 1) * 1_000_000, "reconsumeTimes": 0, "status": "SUCCESS"}
    return java("handled", at, client, queueOffset=offset, key=key, msgId=f"m{offset}", **times)


@pytest.mark.parametrize(
    ("offsets", "in_order"), [((0, 1, 2), True), ((0, 2, 1), False), ((0, 2), False)], ids=["whole", "swapped", "lost"]
)
def test_disorder_of_a_java_consumer_is_seen(offsets: tuple[int, ...], in_order: bool) -> None:
    """Its events are evidence: a swapped message and one that was passed over are found."""
    events = [java("acquired", 1), java("positioned", 2, offset=0)]
    events += [handled(10 + 10 * place, offset) for place, offset in enumerate(offsets)]
    events.append(java("committed", 90, offset=3))
    assert check_traces([[record(event) for event in events]]).in_order == in_order


def test_two_owners_at_once_are_seen() -> None:
    """A Java consumer that handles what another one is handling breaks the order, whatever the offsets."""
    first = [java("acquired", 1), java("positioned", 2, offset=0), handled(10, 0), handled(40, 1)]
    first[-1]["begin_ns"] = 20_000_000
    second = [java("acquired", 25, "b"), java("positioned", 26, "b", offset=1), handled(30, 1, client="b")]
    assert not check_traces([[record(event) for event in events] for events in (first, second)]).in_order
