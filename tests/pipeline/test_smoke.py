"""The pipeline on Spark from end to end: source, sink and audit. `make test` has this test of Spark alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.cli.output import OutputFormat
from lockstep.order import Verdict
from lockstep.pipeline.cli.audit import run_audit
from lockstep.pipeline.cli.options import AuditOptions
from tests.order.stories import Story
from tests.pipeline.sent import sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.harness.processes import Broker


@pytest.mark.smoke
def test_what_was_read_is_sent_on_and_judged(
    spark: "SparkSession", broker: "Broker", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A topic copied to another by Spark, headers and all, has the same bodies, keys, tags and own properties.

    The audit of the copy and of a trace that has each of its messages says that nothing is lost, and all in order.
    """
    name_server = broker.name_server

    def write(df: "DataFrame", topic: str) -> None:
        writer = df.write.format("lockstep").mode("append").option("nameServer", name_server)
        writer.option("topic", topic).save()

    def content(topic: str) -> list[tuple[Any, ...]]:
        return [
            (queue, message.body, message.keys, message.tags, message.sharding_key, message.properties["n"])
            for queue, messages in sent(name_server, topic).items()
            for message in messages
        ]

    rows = spark.sql(
        "select cast(id as string) value, concat('k', id % 3) key, 'T' tags,"
        " array(struct('n' as key, cast(cast(id as string) as binary) as value)) headers from range(50)"
    )
    write(rows.repartition("key"), "original")
    read = spark.read.format("lockstep").option("nameServer", name_server).option("includeProperties", "true")
    write(read.option("topic", "original").load(), "copy")
    assert content("copy") == content("original")
    assert len(content("copy")) == 50

    write_traces(tmp_path, name_server, "copy")
    options = AuditOptions(traces=[str(tmp_path)], name_server=name_server, topic=["copy"], output=OutputFormat.JSON)
    capfd.readouterr()
    assert run_audit(spark, options) is Verdict.IN_ORDER
    (row,) = json.loads(capfd.readouterr().out)
    assert {name: row[name] for name in ("sent", "handled", "lost")} == {"sent": 50, "handled": 50, "lost": 0}


def write_traces(folder: Path, name_server: str, topic: str) -> None:
    """As a consumer of each queue would write them, that handles each message once."""
    for queue_id, messages in sent(name_server, topic).items():
        story, client = Story(), f"consumer-{queue_id}"
        story.own(client, 1, 0)
        story.handle(client, 1, *range(len(messages)))
        for record in story.traces[client]:
            record |= {"topic": topic, "broker": "broker-a", "queue_id": queue_id}
            if record["event"] == "handled":
                message = messages[record["offset"]]
                record |= {"key": message.sharding_key, "msg_id": message.msg_id}
        lines = "".join(json.dumps(record) + "\n" for record in story.traces[client])
        (folder / f"{client}.jsonl").write_text(lines, encoding="utf-8")
