"""`lockstep-pipeline` ends when nobody reads its output any more, as SIGPIPE would end it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.pipeline.cli.errors import is_of_spark
from tests.commands import SCRIPTS, Running
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import Topic

PROGRAM = str(SCRIPTS / "lockstep-pipeline")
SPARK_S = 600  # of a busy machine: Spark and its JVM start, or end


@contextmanager
def running(*words: str) -> Iterator[Running]:
    with Running([PROGRAM, *words], os.environ) as process:
        yield process


@pytest.mark.timeout(900)
def test_a_watch_that_nobody_reads_ends(brokers: Brokers, java: str) -> None:
    """Soon, with 141 and without a word; its next line would come in an hour."""
    topic = Topic.create(brokers.start(), "watched")
    words = ("lag", "-n", topic.broker.name_server, "-g", "g", "-t", topic.name, "--every", "1h", "-o", "json")
    with running(*words) as watch:
        assert topic.name in watch.line(SPARK_S)
        assert watch.popen.stdout is not None
        assert watch.popen.stderr is not None
        watch.popen.stdout.close()
        assert watch.popen.wait(SPARK_S) == 141
        assert b"lockstep-pipeline:" not in watch.popen.stderr.read()  # the JVM may warn


@pytest.mark.timeout(900)
def test_a_result_that_nobody_reads_is_no_failure_of_spark(java: str, tmp_path: Path) -> None:
    """An audit whose report nobody reads ends with 141; it said that Spark's JVM had ended by itself."""
    trace = tmp_path / "a.jsonl"
    trace.write_text("", encoding="utf-8")
    with running("audit", str(trace), "-o", "json") as audit:
        assert audit.popen.stdout is not None
        assert audit.popen.stderr is not None
        audit.popen.stdout.close()
        said = audit.popen.stderr.read()
        assert (audit.popen.wait(SPARK_S), b"JVM ended" in said) == (141, False)


def test_an_audit_of_nothing_says_so(java: str, tmp_path: Path) -> None:
    """Its status is that of an undecided one, and a line says why; it printed nothing."""
    trace = tmp_path / "a.jsonl"
    trace.write_text("", encoding="utf-8")
    with running("audit", str(trace)) as audit:
        assert audit.popen.stderr is not None
        said = audit.popen.stderr.read()
        assert (audit.popen.wait(SPARK_S), b"there is nothing to judge" in said) == (4, True)


def test_a_folder_of_looks_needs_no_reader(brokers: Brokers, java: str, tmp_path: Path) -> None:
    """With --to nothing is printed: `lag --to FOLDER | true` goes on until --for is over."""
    topic = Topic.create(brokers.start(), "kept")
    place = ("-n", topic.broker.name_server, "-g", "g", "-t", topic.name)
    words = ("lag", *place, "--every", "100ms", "--for", "2s", "--to", str(tmp_path / "lag"))
    with running(*words) as watch:
        assert watch.popen.stdout is not None
        watch.popen.stdout.close()
        assert watch.popen.wait(SPARK_S) == 0


def test_a_pipe_to_the_jvm_is_not_stdout() -> None:
    """While stdout has a reader, a broken pipe is the one to Spark's JVM."""
    assert is_of_spark(BrokenPipeError())
