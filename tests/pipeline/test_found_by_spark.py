"""Spark finds the data source by itself: installed for editing and as a wheel, from a folder outside the project."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pipeline.topics import Topic

ROOT = Path(__file__).parents[2]
PACKAGES = ["protocol", "remoting", "broker", "client", "simulation", "pipeline"]
COPIED = ["pyproject.toml", "README.md", "LICENSE", *PACKAGES]
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import pyspark_lockstep
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
frame = spark.read.format("lockstep").options(nameServer=sys.argv[1], subscribe=sys.argv[2]).load()
print("found", frame.count(), pyspark_lockstep.__file__)
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
    site = tmp_path / "site"
    arguments = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    source = tmp_path / "source"
    source.mkdir()
    for name in COPIED:  # built in a copy, so that the tree gets no build folder
        (source / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, *arguments, str(source)], check=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    count, path = read_elsewhere(topic, tmp_path / "elsewhere", environment)
    assert count == 7
    assert path.is_relative_to(site)
