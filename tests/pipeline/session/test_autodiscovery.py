"""Spark finds the data source by itself, installed for editing and as a wheel; and as a zip, on a cluster."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.commands import SCRIPTS
from tests.installed import installed
from tests.pipeline.sent import sent
from tests.pipeline.topics import Topic

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import pyspark_lockstep
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
frame = spark.read.format("lockstep").options(nameServer=sys.argv[1], subscribe=sys.argv[2]).load()
print("found", frame.count(), pyspark_lockstep.__file__)
"""
SUBMITTED = """
from lockstep.pipeline.cli import app as cli
print("came-from", cli.__file__, flush=True)
cli.main()
"""


def read_elsewhere(topic: Topic, folder: Path, environment: dict[str, str]) -> tuple[int, Path]:
    """(rows read, where pyspark_lockstep was) by a program of Spark's alone that runs in `folder`."""
    folder.mkdir()
    arguments = [sys.executable, "-c", PROGRAM, topic.broker.name_server, topic.name]
    shown = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert shown.returncode == 0, shown.stderr[-3000:]
    _, count, path = shown.stdout.split()
    return int(count), Path(path)


@pytest.mark.usefixtures("java")
def test_as_it_is_installed_here(topic: Topic, spark_environment: dict[str, str], tmp_path: Path) -> None:
    """Nobody registers anything; the session of ours only names the folder where Spark looks."""
    topic.fill(3, 4)
    count, _ = read_elsewhere(topic, tmp_path / "elsewhere", spark_environment)
    assert count == 7


@pytest.mark.usefixtures("java")
def test_as_a_wheel(topic: Topic, tmp_path: Path) -> None:
    """A wheel's files on the path, and nothing else of ours."""
    topic.fill(3, 4)
    site = installed(tmp_path)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    count, path = read_elsewhere(topic, tmp_path / "elsewhere", environment)
    assert count == 7
    assert path.is_relative_to(site)


@pytest.mark.usefixtures("java")
def test_as_a_zip_on_a_cluster(topic: Topic, tmp_path: Path) -> None:
    """A command under spark-submit whose driver and executors have nothing of ours but what --py-files brings.

    A wheel would not do: it has no entries for folders, and Python finds no namespace in a zip without them.
    """
    site, program, rows = installed(tmp_path), tmp_path / "lockstep_pipeline.py", tmp_path / "rows.csv"
    zipped = [str(tmp_path / "lockstep.zip"), str(site / "lockstep"), str(site / "pyspark_lockstep")]
    subprocess.run([sys.executable, "-m", "zipfile", "-c", *zipped], check=True, timeout=120)
    python = tmp_path / "python"  # without the .pth files by which a tree that is installed for editing is found
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    program.write_text(SUBMITTED, encoding="utf-8")
    rows.write_text("plane,hour\n" + "".join(f"N{n % 3},{n}\n" for n in range(30)), encoding="utf-8")
    cluster = ["--master", "local-cluster[1,1,1024]", "--conf", "spark.ui.enabled=false", "--py-files", zipped[0]]
    command = ["publish", str(rows), "-n", topic.broker.name_server, "--topic", topic.name]
    done = subprocess.run(
        [SCRIPTS / "spark-submit", *cluster, program, *command, "--key", "plane", "--order-by", "hour"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (where,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("came-from ")]
    assert "lockstep.zip/lockstep/pipeline" in where
    assert sum(len(messages) for messages in sent(topic.broker.name_server, topic.name).values()) == 30
