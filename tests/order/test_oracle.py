"""The judge and a brute-force oracle that shares nothing with it find the same kinds, in good and in bent histories."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.order import check_traces
from tests.order.legal_histories import histories
from tests.order.oracle import KINDS, kinds_found
from tests.order.stories import Story

OWNERS = {"overlap", "stale-owner", "stale-repeat"}  # one name for a call that two of them fit
BACK = {"commit-regress", "stale-commit"}


def kinds_of(traces: list[list[dict[str, Any]]]) -> set[str]:
    """What the judge finds, of the kinds that the oracle knows."""
    found = {str(kind) for kind in check_traces(traces).violation_counts}
    return named({"commit back" if kind in BACK else kind for kind in found} & (KINDS | OWNERS))


def named(kinds: set[str]) -> set[str]:
    return {"two owners" if kind in OWNERS else kind for kind in kinds}


@settings(max_examples=80, derandomize=True, database=None)
@given(histories(), st.data())
def test_the_oracle_finds_what_the_judge_finds(story: Story, data: st.DataObject) -> None:
    """Up to two records are dropped, or their offsets, begins or places in time moved."""
    traces = list(story.traces.values())
    for _ in range(data.draw(st.integers(0, 2))):
        trace = data.draw(st.sampled_from([trace for trace in traces if trace]))
        place = data.draw(st.integers(0, len(trace) - 1))
        record, way = trace[place], data.draw(st.sampled_from(["drop", "begin", "offset", "id"]))
        if way == "drop":
            del trace[place]
        elif way == "begin" and "begin_mono_ns" in record:
            record["begin_mono_ns"] += data.draw(st.integers(-30, 30)) * 1_000_000
        elif way == "offset" and record["event"] == "committed":
            record["offset"] = max(0, record["offset"] + data.draw(st.integers(-4, 4)))
        elif way == "id" and record["event"] == "handled":
            record["msg_id"] = f"stranger-{place}"
    judged, brute = kinds_of([trace for trace in traces if trace]), named(kinds_found(traces))
    if "ends-before-begin" in brute:  # a call without a right time tears its batch in two for the judge
        judged -= {"concurrent-calls"}
        brute -= {"concurrent-calls"}
    assert judged == brute
