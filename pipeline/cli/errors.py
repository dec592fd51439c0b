"""Finds the one line for stderr in a failed job's error, among tracebacks of Python and Java."""

import re
import sys
from typing import Final

from lockstep.cli.stdout_reader import is_unread

__all__ = ["JobFailed", "is_of_reader", "is_of_spark", "note", "one_line"]

_PYTHON_ERROR: Final = re.compile(
    r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Lost|Refused|Timeout|Failed|Missing)): (.*)$"
)
_OURS: Final = re.compile(r"(?:^|: )lockstep\.(?:\w+\.)*[A-Z]\w*: (.*)$")
_JAVA_ERROR: Final = re.compile(r"^: (?:org|java|scala)\.[\w.$]+: |^Caused by: org\.apache\.spark\.[\w.$]+: ")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
_STACK: Final = re.compile(r"^\s*(?:at [\w.$/<>]+\(|File \"|Traceback|Driver stacktrace|JVM stacktrace|\^+)")
_LINE_MAX: Final = 600
_JVM_ENDED: Final = "Spark's JVM ended by itself; if its memory was too small, --driver-memory gives it more"


class JobFailed(Exception):
    """A Spark job failed; the text is the line for stderr."""


def note(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"lockstep-pipeline: {' '.join(text.split())}\n")
    sys.stderr.flush()


def is_of_spark(error: BaseException) -> bool:
    """Whether PySpark raised it, or a call to a JVM that has ended."""
    if is_of_reader(error):
        return False
    return isinstance(error, ConnectionError) or type(error).__module__.startswith(("pyspark.", "py4j."))


def is_of_reader(error: BaseException) -> bool:
    """Whether the reader of stdout has closed it: a pipe to a JVM may break, too."""
    return isinstance(error, BrokenPipeError) and is_unread()


def one_line(error: BaseException) -> str:
    """The sentence of an error that helps a person: of our own error if there is one inside, else of Spark's."""
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return _JVM_ENDED
    try:
        text = str(error)
    except Exception:  # str() asks the JVM
        return _JVM_ENDED
    lines = [_STATE.sub("", line).rstrip() for line in text.splitlines()]
    for line in reversed(lines):
        if found := _OURS.search(line.strip()):
            return _cut(found[1])
    named = [line[found.end() :] for line in lines if (found := _JAVA_ERROR.match(line))]
    if named and named[0]:
        return _cut(named[0])
    first = next((line.strip() for line in lines if line.strip() and not _STACK.match(line)), type(error).__name__)
    if first.endswith(":") or "Python worker" in first or "Job aborted" in first:
        for line in reversed(lines):
            if found := _PYTHON_ERROR.match(line.strip()):
                return _cut(f"{found[1]}: {found[2]}")
    return _cut(first)


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_MAX else f"{text[:_LINE_MAX]} ..."
