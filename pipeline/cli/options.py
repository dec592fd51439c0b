"""The options that the commands share, and what they give: a session of Spark, a client's addresses."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from lockstep.cli.output import OutputFormat
from lockstep.pipeline.cli.errors import JobFailed, UsageError, is_of_spark, one_line
from lockstep.pipeline.client.blocking import Addresses
from lockstep.remoting.settings import parse_addresses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Conf",
    "DriverMemory",
    "Master",
    "NameServer",
    "OptionalNameServer",
    "Output",
    "Session",
    "Verbose",
    "addresses",
    "pairs",
]

_SERVERS = typer.Option(
    "--name-server", "-n", envvar="NAMESRV_ADDR", metavar="HOST:PORT", help="Name servers, with ';' between several."
)
NameServer = Annotated[str, _SERVERS]
OptionalNameServer = Annotated[str | None, _SERVERS]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table, or JSON.")]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master.", show_default="local[*]; under spark-submit what that says"),
]
DriverMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory of Spark's driver, as 4g.", show_default="2g; under spark-submit what that says"
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Let Spark's warnings through.")]


class Session(NamedTuple):
    """What was asked of Spark."""

    name: str
    master: str | None
    driver_memory: str | None
    conf: list[str] | None
    verbose: bool

    @contextmanager
    def opened(self) -> "Iterator[SparkSession]":
        """A session that ends with the body. Raises SparkMissing, JavaMissing, UsageError; JobFailed for Spark's."""
        from lockstep.pipeline.spark.session import end_session, spark_session

        spark = spark_session(
            f"lockstep-pipeline {self.name}",
            master=self.master,
            driver_memory=self.driver_memory,
            verbose=self.verbose,
            settings=pairs(self.conf, "--conf"),
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own asks the JVM in the middle of a question
        try:
            yield spark
        except Exception as error:
            if is_of_spark(error):  # the JVM is asked for its text
                raise JobFailed(one_line(error)) from error
            raise
        finally:
            end_session(spark)


def pairs(texts: list[str] | None, option: str) -> Mapping[str, str]:
    """`name=value` texts. Raises UsageError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text!r}: write {option} name=value")
        found[name] = value
    return found


def addresses(name_server: str) -> Addresses:
    """Raises SettingError."""
    return Addresses(tuple(map(str, parse_addresses(name_server))))
