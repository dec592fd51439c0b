"""The SparkSession of a job: this Python for its workers, our data source on their path, no UI, few log lines."""

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

__all__ = [
    "SMALL_BYTES",
    "SparkMissing",
    "end_session",
    "register",
    "spark_session",
    "use_here",
    "worker_environment",
]

SMALL_BYTES: Final = 16 << 20
"""Less input is small: starting and planning take longer than the work."""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SMALL_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the second compiler pays off after minutes
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
    "spark.driver.memory": "2g",  # a local driver does all work: 1g is too little for an audit
    "spark.sql.shuffle.partitions": "16",  # Spark's default of 200 is for a cluster
    "spark.unsafe.sorter.spill.read.ahead.enabled": "false",  # needs two heap buffers for each piece of a spill
    # For local files this reader takes direct memory for a whole row group. With a limit on direct memory the reading
    # thread dies, and the query never ends.
    "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
}
_MASTER: Final = re.compile(r"(?:local(?:\[.+\])?|local-cluster\[.+\]|yarn|(?:spark|k8s)://.+)")


class SparkMissing(PipelineError):
    """PySpark is not installed; the text says how to install it."""


def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str | None = None,
    verbose: bool = False,
    small: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Make a session, or get the existing one.

    Args:
        master: Spark's; None: the one of spark-submit, or local[*].
        driver_memory: As Spark writes it, "4g"; default "2g" with a local master.
        verbose: Show Spark's warnings.
        small: The input is less than SMALL_BYTES; a local session then starts and plans with less work of processors.
        settings: Spark's settings; they override ours.

    Raises:
        SparkMissing, JavaMissing
        PipelineError: The master cannot be used.
    """
    try:
        import pyarrow as pa  # noqa: F401  (Spark tells its absence late, with a traceback)
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise _missing(error) from None
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, and chose Java and master
    if not submitted:
        find_java()
        os.environ.update(worker_environment(os.environ))
    chosen = dict(_QUIET)
    if not submitted:
        master = master or ("local[1]" if small else "local[*]")
        if not _MASTER.fullmatch(master):  # Spark's error is a Java stack trace
            raise PipelineError(f"{master!r} is no master of Spark: local[N], yarn, spark://HOST:PORT, k8s://HOST:PORT")
        chosen |= _LOCAL if master.startswith("local") else {}
        level = "warn" if verbose else "off"
        chosen[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -Dlockstep.spark.log={level}"
        if small and master.startswith("local"):
            chosen[_JAVA_OPTIONS] += f" {_SMALL_JAVA_OPTIONS}"
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
    if submitted:  # with --py-files our package is not where Spark looks for data sources
        from lockstep.pipeline.source.data_source import LockstepSource

        session.dataSource.register(LockstepSource)
    if not verbose:
        quiet: Any = session.sparkContext
        quiet._accumulatorServer.handle_error = _say_nothing  # noqa: SLF001  (a traceback, when the JVM ends by itself)
    return session


def _say_nothing(*_: object) -> None:
    pass


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that Spark's processes need in addition to the inherited ones.

    Spark looks for data sources only in folders of the path. An installed wheel is in one; an editable install is not,
    so its folder is added.
    """
    added = {"PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable)}
    spec = importlib.util.find_spec("pyspark_lockstep")
    if spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parents[1])
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if folder not in [*sys.path, *paths]:
            added["PYTHONPATH"] = os.pathsep.join([folder, *paths])
    return added


def register(session: "SparkSession") -> None:
    """Make `format("lockstep")` known to a session that you have made, whatever `python3` is on the PATH.

    Where PYSPARK_PYTHON is not set, a local session's workers run this Python from now on, also for your functions.

    Raises SparkMissing.
    """
    try:
        import pyarrow as pa  # noqa: F401  (a read needs it)

        from lockstep.pipeline.source.data_source import LockstepSource
    except ImportError as error:
        raise _missing(error) from None
    context: Any = session.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and context.master.startswith("local"):
        context.pythonExec = sys.executable
    session.dataSource.register(LockstepSource)


def _missing(error: ImportError) -> SparkMissing:
    module = (error.name or "PySpark").partition(".")[0]
    return SparkMissing(f"{module} is not installed: pip install 'lockstep-mq[spark]'")


def use_here(session: "SparkSession") -> None:
    """Make the session active in this thread: only the thread that made it has it.

    Without an active session Spark does not find data sources that are written in Python.
    """
    session.createDataFrame([], "nothing int")  # makes a session active as a side effect


def end_session(session: "SparkSession") -> None:
    """Stop the session and its JVM, which otherwise lives as long as this process.

    The next session gets a new JVM.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway = context._gateway  # noqa: SLF001  (no public way leads to a JVM's end)
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            session.stop()
    except (Py4JError, OSError):  # the JVM has ended; this process still has its state
        session.sparkContext.stop()
        known: Any = SparkSession
        known._instantiatedSession = known._activeSession = None  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is None:  # spark-submit started it
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.wait(_JVM_END_TIMEOUT_S)
    context._gateway = context._jvm = None  # noqa: SLF001
