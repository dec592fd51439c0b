"""lockstep-pipeline: a clear line for whatever is wrong, and its status; and no Spark before its time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.output import UsageError
from lockstep.pipeline.cli.errors import one_line
from lockstep.pipeline.cli.options import AuditOptions, SweepOptions
from lockstep.pipeline.options import OPTIONS
from lockstep.pipeline.spark.session import SMALL_BYTES
from tests.commands import Lockstep
from tests.rows import by_row

ROOT = Path(__file__).parents[2]

PYTHON_TEXT = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize the reader: Traceback (most recent call last):
  File "somewhere/source.py", line 39, in reader
lockstep.pipeline.errors.OptionError: option nameServer is missing
 SQLSTATE: 38000
"""
JAVA_TEXT = """An error occurred while calling o276.save.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no such source. SQLSTATE: 42K02
\tat org.apache.spark.sql.execution.datasources.DataSource$.lookupDataSource(DataSource.scala:710)
Caused by: java.lang.ClassNotFoundException: lockstep.DefaultSource
"""
ONE_LINE = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: lockstep.remoting.errors.ConnectionLost: it ended: no one answers\n"
    " SQLSTATE: 38000"
)
TEXTS = [
    (ONE_LINE, "it ended: no one answers"),
    (PYTHON_TEXT, "option nameServer is missing"),
    (JAVA_TEXT, "[DATA_SOURCE_NOT_FOUND] no such source."),
    (
        "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03",
        "[PATH_NOT_FOUND] Path does not exist: file:/x.",
    ),
    (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\nValueError: too late\n",
        "ValueError: too late",
    ),
    ("", "RuntimeError"),
]


@by_row("text, line", TEXTS, ids=["ours", "ours with a stack", "Java's", "Spark's", "Python's", "none"])
def test_an_error_of_spark_becomes_its_sentence(text: str, line: str) -> None:
    """The text of a job's error is one line, without a traceback of either language."""
    assert one_line(RuntimeError(text)) == line


WRONG = [
    ((), "Usage: lockstep-pipeline"),
    (("publish", "x.csv"), "Missing option '--name-server'"),
    (("lag", "-n", "h:1", "-g", "g", "-t", "a b"), "a b"),
    (("sweep", "nothing"), "no experiment is named 'nothing'"),
    (("sweep", "worlds", "--seeds", "0"), "--seeds"),
    (("sweep", "worlds", "--lock-mode", "strict"), "use faithful, fenced or both"),
    (("lag", "-n", "h:x", "-g", "g", "-t", "t"), "h:x"),
    (("audit", "x", "--topic", "t"), "--topic needs --name-server"),
    (("audit", "x", "--report", "/"), "--report: cannot write /: Is a directory"),
    (("audit", "x", "--to", "/dev/null/t"), "--to: cannot write /dev/null/t: Not a directory"),
    (("lag", "-n", "h:1", "-g", "g", "-t", "t", "--to", "/dev/null"), "--to: cannot write /dev/null: Not a directory"),
    (("sweep", "worlds", "--to", "/dev/null/t"), "--to: cannot write /dev/null/t: Not a directory"),
    (("lag", "-n", "h:1", "-g", "g", "-t", "t", "--once", "--conf", "nothing"), "write --conf name=value"),
]


@by_row("words, said", WRONG, ids=[" ".join(words) or "nothing" for words, _ in WRONG])
def test_a_wrong_call_is_told_before_spark_starts(words: tuple[str, ...], said: str) -> None:
    """Status 2, one line on stderr, and no JVM."""
    status, out, err = Lockstep("").run("lockstep-pipeline", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_folder_that_may_be_elsewhere_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's file system is not this machine's, where its settings, or those of Hadoop, may name another."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    nowhere = Path("/dev/null/t")
    with pytest.raises(UsageError):
        SweepOptions(name="worlds", to=nowhere, master="local[2]", conf=["spark.ui.enabled=true"])
    SweepOptions(name="worlds", to=nowhere, master="spark://h:7077")
    SweepOptions(name="worlds", to=nowhere, conf=["spark.hadoop.fs.defaultFS=hdfs://h"])
    SweepOptions(name="worlds", to=Path("hdfs://h/dev/null/t"))
    for name in ("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            SweepOptions(name="worlds", to=nowhere)


def test_help_does_not_import_spark() -> None:
    """It comes at once, also where PySpark is not installed."""
    program = "import sys, lockstep.pipeline.cli.app; print([m for m in sys.modules if m in ('pyspark', 'pyarrow')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


def test_the_guide_names_every_option() -> None:
    """docs/pipeline.md has each option of the data source."""
    guide = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    assert [option.name for option in OPTIONS if f"`{option.name}`" not in guide] == []


def test_a_small_audit_is_known_before_spark_starts(tmp_path: Path) -> None:
    """Only local traces of few bytes are small: not a topic, not a trace that another file system may have."""
    trace = tmp_path / "runs" / "one" / "a.jsonl"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(b"{}\n")
    local = [str(trace), str(tmp_path / "runs"), str(trace.parent / "*.jsonl")]
    assert AuditOptions(traces=local).is_small()
    assert not AuditOptions(traces=[*local, "hdfs://a/trace"]).is_small()
    assert not AuditOptions(traces=local, name_server="127.0.0.1:9876", topic=["t"]).is_small()
    os.truncate(trace, SMALL_BYTES)
    assert not AuditOptions(traces=[str(tmp_path / "runs")]).is_small()
