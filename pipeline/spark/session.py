"""The SparkSession of a job: this Python for its workers, our data source on their path, no UI, no chatter."""

import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lockstep.pipeline.errors import PipelineError
from lockstep.pipeline.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkMissing", "end_session", "spark_session", "use_here", "worker_environment"]

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_JVM_END_TIMEOUT_S: Final = 30
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",  # where the driver does everything, Spark's 1g is too little for a large audit
    "spark.sql.shuffle.partitions": "16",  # Spark's 200 are for a cluster
    "spark.unsafe.sorter.spill.read.ahead.enabled": "false",  # it takes two buffers of heap for each piece of a spill
    # Of local files these take direct memory for a whole row group at once. Where that is bounded the thread that reads
    # dies of it, and the query waits for ever.
    "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
}
_MASTER: Final = re.compile(r"(?:local(?:\[.+\])?|local-cluster\[.+\]|yarn|(?:spark|k8s)://.+)")


class SparkMissing(PipelineError):
    """PySpark is not installed; the text says how it is."""


def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str | None = None,
    verbose: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session, or the one that there is. Without `master`: what spark-submit said, and local[*] without it.

    `driver_memory` is Spark's text, on a local master "2g" where it is not given; `settings` are Spark's own and win
    over ours. `verbose` lets Spark's warnings through. Raises SparkMissing, JavaMissing, PipelineError for what is no
    master.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing("PySpark is not installed: pip install 'lockstep-mq[spark]'") from None
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, and chose Java and master
    if not submitted:
        find_java()
        os.environ.update(worker_environment(os.environ))
    chosen = dict(_QUIET)
    if not submitted:
        master = master or "local[*]"
        if not _MASTER.fullmatch(master):  # Spark's answer is a Java stack
            raise PipelineError(f"{master!r} is no master of Spark: local[N], yarn, spark://HOST:PORT, k8s://HOST:PORT")
        chosen |= _LOCAL if master.startswith("local") else {}
        level = "warn" if verbose else "off"
        chosen[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -Dlockstep.spark.log={level}"
    if driver_memory:
        chosen["spark.driver.memory"] = driver_memory
    given = dict(settings or {})
    if _JAVA_OPTIONS in given and _JAVA_OPTIONS in chosen:
        given[_JAVA_OPTIONS] = f"{chosen[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if master:
        builder = builder.master(master)
    session: SparkSession = builder.config(map={**chosen, **given}).getOrCreate()
    if submitted:  # we may have come by --py-files, which Spark does not have where it looks for data sources
        from lockstep.pipeline.source.data_source import LockstepSource

        session.dataSource.register(LockstepSource)
    if not verbose:
        quiet: Any = session.sparkContext
        quiet._accumulatorServer.handle_error = _say_nothing  # noqa: SLF001  (a traceback, when the JVM ends by itself)
    return session


def _say_nothing(*_: object) -> None:
    pass


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the processes that Spark starts need beside what they inherit.

    Spark looks for data sources in folders of the path alone. An installed wheel is in one; where the project is
    installed for editing, the folder must be named.
    """
    added = {"PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable)}
    spec = importlib.util.find_spec("pyspark_lockstep")
    if spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parents[1])
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if folder not in [*sys.path, *paths]:
            added["PYTHONPATH"] = os.pathsep.join([folder, *paths])
    return added


def use_here(session: "SparkSession") -> None:
    """Make it the active session of this thread, which a thread other than the one that made it does not have.

    Without one Spark finds no data source that is written in Python.
    """
    session.createDataFrame([], "nothing int")  # what makes a session active beside its work


def end_session(session: "SparkSession") -> None:
    """Stop it and its JVM, which else lives until this process ends, if it has not ended by itself.

    The next session here gets a JVM of its own.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001  (no public way leads to a JVM's end)
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            session.stop()
    except (Py4JError, OSError):  # the JVM is gone; what is left is this process's own
        session.sparkContext.stop()
        known: Any = SparkSession
        known._instantiatedSession = known._activeSession = None  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is None:  # spark-submit's, not ours
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.wait(_JVM_END_TIMEOUT_S)
    context._gateway = context._jvm = None  # noqa: SLF001
