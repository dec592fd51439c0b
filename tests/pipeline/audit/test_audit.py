"""The audit's tables, from files: clean runs raise no alarm, and each wrong that is put in is found and named."""

import json
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.pipeline.audit import TABLES, TRACE_COLUMNS, Audit, read_traces, transform
from lockstep.pipeline.audit.corruptions import CORRUPTIONS, corrupt_files
from lockstep.pipeline.spark.session import SMALL_BYTES
from tests.order.stories import Story
from tests.pipeline.audit.audit_histories import History
from tests.pipeline.audit.made_traces import Shape, topic_rows, write_traces
from tests.pipeline.audit.test_audit_equality import traces_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SHAPE = Shape(3000, queues=3, consumers=4, hosts=1, keys=5, takeover_every=400, commit_every=50, repeated=20)
TAKEOVERS = 6  # 3 queues of 1000 messages each, each taken over at 400 and 800


Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def generated(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[dict[str, Tables]]":
    """The tables of generated traces with some takeovers in them, and of the same with each corruption, by its name."""
    from pyspark.sql import functions as fn

    folder = tmp_path_factory.mktemp("traces")
    clean = folder / "clean"
    write_traces(spark, SHAPE, str(clean))
    for name in CORRUPTIONS:
        corrupt_files(clean, folder / name, name)
    topic = topic_rows(spark, SHAPE).withColumn("history", fn.lit("clean"))
    with transform(histories(spark, {name: folder / name for name in ["clean", *CORRUPTIONS]}), topic) as audit:
        yield by_history(audit)


@pytest.fixture(scope="module")
def told(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[dict[str, Tables]]":
    """The tables of small stories, by their names; some are files with lines that are no records."""
    folder = tmp_path_factory.mktemp("told")
    for name, text in {"1323/a.jsonl": one_three_two_three(), **broken_files()}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    frame = traces_frame(spark, in_topics())
    content = [("all", "orders", "b", 0, offset) for offset in range(6)] + [("aged", "orders", "b", 0, 3)]
    topic = spark.createDataFrame(content, "history string, topic string, brokerName string, queueId int, offset long")
    files = histories(spark, {"1323": folder / "1323", "broken": folder / "broken"})
    with transform(frame.unionByName(files), topic) as audit:
        yield by_history(audit)


def histories(spark: "SparkSession", folders: dict[str, Path]) -> "DataFrame":
    """The traces of several folders, each a history of that name."""
    from pyspark.sql import functions as fn

    frames = [read_traces(spark, str(path)).withColumn("history", fn.lit(name)) for name, path in folders.items()]
    return reduce(lambda one, other: one.unionByName(other), frames)


def by_history(audit: Audit) -> dict[str, Tables]:
    """All tables, as rows, told apart."""
    assert set(audit) == set(TABLES)
    found: dict[str, Tables] = {row.history: {name: [] for name in audit} for row in audit["summary"].collect()}
    for name, table in audit.items():
        for row in table.collect():
            found[row.history][name].append(row.asDict())
    return found


def lines(story: Story, client: str = "a") -> list[str]:
    """A client's trace as its file has it."""
    return [json.dumps(record) for record in story.traces[client]]


def one_three_two_three() -> str:
    story = Story()
    story.own("a", 1, 1)
    story.handle("a", 1, 1, 3, 2, 3)
    return "\n".join(lines(story)) + "\n"


def broken_files() -> dict[str, str]:
    story = Story()
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    whole = lines(story)
    torn = "\n".join([*whole[:3], '{"event":', *whole[3:], '{"event":"hand'])
    return {"broken/a.jsonl": torn, "broken/b.jsonl": '{"offset": "many"}\n'}


def in_topics() -> list[History]:
    """Offset 1 is not handled and committed past; in one topic all is there, in the other what was below 3 is gone."""
    story = Story()
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 2, 3, keys="WXYZ")
    story.commit("a", 1, 4)
    return [History(name, list(story.traces.values())) for name in ("all", "aged")]


def test_a_generated_run_with_takeovers_is_in_order(generated: dict[str, Tables]) -> None:
    """Takeovers are handovers of the gap's length and duplicates by their cause, and no violation."""
    tables = generated["clean"]
    (row,) = tables["summary"]
    assert tables["violations"] == []
    assert {name: row[name] for name in ("sent", "handled", "lost", "queues", "keys", "in_order")} == {
        "sent": 3000, "handled": 3000, "lost": 0, "queues": 3, "keys": 15, "in_order": True,
    }  # fmt: skip
    assert row["attempts"] == 3000 + TAKEOVERS * SHAPE.repeated
    assert {(r["cause"], r["messages"]) for r in tables["duplicates"]} == {("takeover", 2 * SHAPE.repeated)}
    assert [r["duration_ms"] for r in tables["handovers"]] == [SHAPE.gap_ms] * TAKEOVERS


def test_the_measures_of_a_generated_run(generated: dict[str, Tables]) -> None:
    """Owners, lags and rates add up to what was generated."""
    tables = generated["clean"]
    attempts = 3000 + TAKEOVERS * SHAPE.repeated
    assert (len(tables["owners"]), sum(r["attempts"] for r in tables["owners"])) == (TAKEOVERS + 3, attempts)
    lags = [r for r in tables["latency"] if r["measure"] == "lag"]
    assert [r["messages"] for r in lags] == [1000] * 3
    assert all(1 <= r["p50_ms"] <= r["p90_ms"] <= r["p99_ms"] <= r["max_ms"] <= 51 for r in lags)
    assert sum(r["attempts"] for r in tables["rates"]) == attempts
    assert sum(r["repeats"] for r in tables["rates"]) == TAKEOVERS * SHAPE.repeated


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_wrong_is_found_and_named(generated: dict[str, Tables], name: str) -> None:
    """A corruption of the clean files is found, with its places, and what is found is that and nothing else."""
    tables, kind = generated[name], CORRUPTIONS[name].kind
    assert Counter(row["kind"] for row in tables["violations"]) == Counter([str(kind)] if kind else [])
    assert all(row["places"] and f":{row['queue_id']}" in row["evidence"] for row in tables["violations"])
    assert [row["torn"] for row in tables["broken_lines"]] == ([] if kind else [True])


def test_1_3_2_3_is_not_in_order(told: dict[str, Tables]) -> None:
    """1, 2, 3 is a subsequence of it; the violation names queue, key, offsets, process and two lines of the file."""
    (row,) = told["1323"]["violations"]
    assert (row["kind"], row["rule"], row["key"], row["offsets"]) == ("nonmonotonic-poll", "a", "K", [3, 2])
    assert row["processes"] == ["a", "a"]
    assert [place.rpartition("/")[2] for place in row["places"]] == ["a.jsonl:4", "a.jsonl:5"]
    assert row["evidence"].startswith("a (period 1) first handled offset 2 of key 'K' of orders@b:0 after offset 3")
    assert (row["word"], row["confidence"], row["size"]) == ("the only one", "certain", 1)
    assert row["story"].endswith("a.jsonl --queue orders/b/0 --group g --around 2")
    assert row["end_ms"] - row["begin_ms"] > 5  # two calls of five milliseconds
    assert [json.loads(text)["offset"] for text in row["records"]] == [3, 2]


def test_lines_that_are_no_records(told: dict[str, Tables]) -> None:
    """A torn last line is expected; any other is reported by its file and line, and the rest counts in full."""
    broken = {(Path(r["file"]).name, r["line"], r["torn"]) for r in told["broken"]["broken_lines"]}
    assert broken == {("a.jsonl", 4, False), ("a.jsonl", 6, True), ("b.jsonl", 1, False)}
    (row,) = told["broken"]["summary"]
    assert (row["handled"], row["torn_lines"], row["broken_lines"]) == (2, 1, 2)


@pytest.mark.parametrize(("history", "lost"), [("all", 3), ("aged", 1)])
def test_what_is_in_the_topic_must_have_been_handled(told: dict[str, Tables], history: str, lost: int) -> None:
    """A message that only the topic knows is lost; one below a commit is a violation, also when it has aged out."""
    (row,) = told[history]["violations"]
    (summed,) = told[history]["summary"]
    sentence = "a committed orders@b:0 up to 4, but offset 1 had no handling"
    assert (row["kind"], row["evidence"]) == ("lost-write", sentence)
    assert (summed["lost"], summed["in_order"]) == (lost, False)


def test_small_and_large_traces_have_the_same_tables(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows on the driver and rows on executors are the same; the key is half a surrogate pair, which Arrow refuses."""
    (tmp_path / "a.jsonl").write_text(one_three_two_three().replace('"K"', '"\\ud800"'), encoding="utf-8")
    found = []
    for small_bytes in (SMALL_BYTES, 0):
        monkeypatch.setattr("lockstep.pipeline.audit.traces.SMALL_BYTES", small_bytes)
        with transform(read_traces(spark, str(tmp_path))) as audit:
            assert audit.is_small == bool(small_bytes)
            found.append(by_history(audit))
    assert found[0] == found[1]
    assert [row["kind"] for row in found[0][""]["violations"]] == ["nonmonotonic-poll"]


def test_no_traces_have_no_history(spark: "SparkSession") -> None:
    """Of nothing there are tables without a row."""
    with transform(spark.createDataFrame([], TRACE_COLUMNS)) as audit:
        assert audit["violations"].collect() == []


def test_a_folder_that_is_not_there(spark: "SparkSession", tmp_path: Path) -> None:
    """The path is named."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="nowhere"):
        read_traces(spark, str(tmp_path / "nowhere"))
