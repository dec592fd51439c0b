"""A session that a user has made: `register` makes the data source known, and errors are short."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from lockstep.pipeline.spark.java import find_java
from tests.pipeline.topics import Topic
from tests.rows import by_row

PROGRAM = """
import json
import sys
from pyspark.sql import SparkSession
from lockstep.pipeline.spark.session import register
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
register(spark)
options = {"nameServer": sys.argv[1], "subscribe": sys.argv[2]}
print("found", spark.read.format("lockstep").options(**options).load().count())
print("columns", spark.read.format("lockstep").options(columns="offset,value", **options).load().schema.simpleString())


def streamed(**more):
    rows = spark.readStream.format("lockstep").options(**{**options, **more}).load()
    rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def read(**more):
    spark.read.format("lockstep").options(**{**options, **more}).load().count()


def write(**more):
    rows = spark.sql("select cast(null as string) value")
    rows.write.format("lockstep").options(nameServer=sys.argv[1], topic=sys.argv[2]).mode("append").save()


tried = {
    "option": lambda: read(minPartitions="0"),
    "topic": lambda: read(subscribe="no-such-topic"),
    "server": lambda: read(nameServer="127.0.0.1:1", **{"fetchOffset.numRetries": "0"}),
    "column": lambda: read(columns="offset,size"),
    "stream option": lambda: streamed(minPartitions="0"),
    "stream topic": lambda: streamed(subscribe="no-such-topic"),
    "row": write,
}
for what, run in tried.items():
    try:
        run()
    except Exception as error:
        print("said", json.dumps([what, str(error)]))
"""
SAID = {
    "option": "option minPartitions: '0' cannot be: it is no whole number of 1 to 100000; allowed:",
    "topic": "no topic 'no-such-topic': the name servers",
    "server": "no name server answers",
    "column": "option columns: 'offset,size' cannot be: there is no column size; allowed:",
    "stream option": "option minPartitions: '0' cannot be: it is no whole number of 1 to 100000; allowed:",
    "stream topic": "no topic 'no-such-topic': the name servers",
    "row": "partition 0: row 0: value is null; a message has a body",
}
WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from lockstep.pipeline.cli.app import main
main()
"""


@pytest.mark.usefixtures("java")
def test_a_session_in_a_venv_that_is_not_active(topic: Topic, tmp_path: Path) -> None:
    """No variable names the Python, and `python3` on the PATH is another.

    What is wrong with options, topics, servers and rows is told in one line, without a stack of ours.
    """
    topic.fill(3, 4)
    other = tmp_path / "python3"  # what workers would run: it has nothing of ours
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
    other.chmod(0o755)
    named = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    environment["PATH"] = os.pathsep.join([str(tmp_path), str(find_java().parent), "/usr/bin", "/bin"])
    program = [sys.executable, "-c", PROGRAM, topic.broker.name_server, topic.name]
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "found 7" in done.stdout
    assert "columns struct<offset:bigint,value:binary>" in done.stdout
    lines = done.stdout.splitlines()
    said = dict(json.loads(line.removeprefix("said ")) for line in lines if line.startswith("said "))
    assert said.keys() == SAID.keys()
    for what, text in said.items():
        assert SAID[what] in text
        assert "Traceback" not in text, text
        assert "File " not in text, text


@by_row("module, command", product(("pyspark", "pyarrow"), ("publish", "audit", "lag")))
def test_a_command_without_spark_says_what_to_install(command: str, module: str, tmp_path: Path) -> None:
    """One line, status 1, and no traceback."""
    words = {
        "publish": ["rows.csv", "-n", "127.0.0.1:1", "-t", "t", "--key", "a", "--order-by", "b"],
        "audit": ["traces"],
        "lag": ["-n", "127.0.0.1:1", "-g", "g", "-t", "t", "--once"],
    }[command]
    program = [sys.executable, "-c", WITHOUT, module, command, *words]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    line = f"lockstep-pipeline: {module} is not installed: pip install 'lockstep-mq[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_a_job_without_spark_says_what_to_install(module: str) -> None:
    """`register` of a job's own session, in an environment without the extra: the last line of the error says it."""
    program = "import sys; sys.modules[sys.argv[1]] = None; "
    program += "from lockstep.pipeline.spark.session import register; register(None)"
    done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, timeout=200)
    last = f"lockstep.pipeline.spark.session.SparkMissing: {module} is not installed: pip install 'lockstep-mq[spark]'"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, last)


def test_help_has_a_short_name() -> None:
    """-h is --help, of the program and of each command."""
    program = [sys.executable, "-c", WITHOUT, "pyspark"]
    for words in ((), ("publish",), ("audit",), ("lag",)):
        done = subprocess.run([*program, *words, "-h"], capture_output=True, text=True, timeout=200)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage:" in done.stdout
