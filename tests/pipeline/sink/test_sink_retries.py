"""What needs a Spark of its own: tasks run again, what is refused, and executors in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.conftest import SPARK_SETTINGS
from tests.pipeline.sent import contiguous_rewinds, row_of, sent, task_of

if TYPE_CHECKING:
    from tests.integration.harness.processes import Broker

PROGRAM = Path(__file__).with_name("spark_program.py")
ROOT = Path(__file__).parents[3]
END_S = 600
Run = Callable[..., Any]


@pytest.fixture
def run(java: str, spark_environment: dict[str, str], broker: "Broker", tmp_path: Path) -> Run:
    """`run(story, topic, settings)` is the answer of a story of spark_program.py, run in a folder of its own."""

    def story(name: str, topic: str, settings: dict[str, str]) -> Any:
        spec = {
            "name_server": broker.name_server,
            "topic": topic,
            "checkpoint": str(tmp_path / "checkpoint"),
            "settings": {**SPARK_SETTINGS, "spark.local.dir": str(tmp_path), **settings},
        }
        command = [sys.executable, str(PROGRAM), name, json.dumps(spec)]
        environment = {"PATH": str(Path(java).parent), "HOME": str(tmp_path), **spark_environment}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=END_S, check=False
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
        return json.loads(ended.stdout.splitlines()[-1])

    return story


def test_a_task_that_failed_is_a_contiguous_rewind(run: Run, broker: "Broker") -> None:
    """Rows sent twice are the same rows in the same order, from an earlier one on; drop_repeats gives each once."""
    answer = run(
        "retried", "retried", {"spark.master": "local[2,3]", "spark.sql.execution.arrow.maxRecordsPerBatch": "200"}
    )
    queues = sent(broker.name_server, "retried")
    rewinds = 0
    for messages in queues.values():
        for task in {task_of(message) for message in messages}:
            rewinds += contiguous_rewinds([row_of(message) for message in messages if task_of(message) == task])
    assert rewinds > 0
    assert answer["stored"] == sum(map(len, queues.values())) > 4000
    kept = answer["kept"]
    assert sorted(int(value) for _, _, value in kept) == list(range(4000))
    last: dict[int, int] = {}
    for _, _, value in kept:
        key = int(value) % 23
        assert int(value) > last.get(key, -1)
        last[key] = int(value)


def test_speculative_execution_is_refused(run: Run, broker: "Broker") -> None:
    """With spark.speculation nothing is sent, and the setting is named."""
    text = run("refused", "speculation", {"spark.master": "local[2]", "spark.speculation": "true"})
    assert "OptionError: spark.speculation is true" in text
    assert sum(map(len, sent(broker.name_server, "speculation").values())) == 0


def test_executors_in_processes_of_their_own(run: Run, broker: "Broker") -> None:
    """On a cluster of two executors, started in another folder, a topic is written, read, and streamed to another."""
    answer = run("round_trip", "cluster", {"spark.master": "local-cluster[2,1,1024]"})
    assert answer["processes"] >= 2
    assert answer["read"] == list(range(4000))
    assert answer["copied"] == 4000
    assert sum(map(len, sent(broker.name_server, "cluster-copy").values())) == 4000


def test_the_audit_in_executors_of_their_own(run: Run) -> None:
    """On the same cluster, without a folder that its executors share, the audit finds a run with takeovers in order."""
    row = run("audited", "audited", {"spark.master": "local-cluster[2,1,1024]"})
    assert (row["sent"], row["handled"], row["handovers"], row["duplicates"]) == (3000, 3000, 6, 120)
    assert (row["violations"], row["in_order"]) == (0, True)
