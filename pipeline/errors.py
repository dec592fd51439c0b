"""Errors of the data source. Spark shows their text inside an error of its own.

- `OptionError`: a wrong option; the text names it and says what is allowed.
- `TopicError`: a topic or a queue that does not exist, or may not be read or written; a `NoRouteError` of the client.
- `DataLossError`: offsets to read were deleted; the text names them.
- `ColumnError`: a DataFrame that cannot be sent; the text names the column and the types it may have.
- `RowError`: a row that cannot be sent; the text says which and why.
- `OrderError`: rows or messages that are out of order.
- `SendFailed`: a broker refused messages, or they may or may not be stored.

All are `PipelineError`. Beside them come those of the client, such as `RemotingError` for failures of the network.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lockstep.client.errors import ClientError, NoRouteError

__all__ = [
    "ColumnError",
    "DataLossError",
    "OptionError",
    "OrderError",
    "PipelineError",
    "RowError",
    "SendFailed",
    "TopicError",
    "errors_in_one_line",
]

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when a worker reports an error, and ends


class PipelineError(Exception):
    """Base class of all errors of this package; not raised itself."""


class OptionError(PipelineError, ValueError):
    pass


class TopicError(PipelineError, NoRouteError):
    pass


class DataLossError(PipelineError):
    pass


class ColumnError(PipelineError, ValueError):
    pass


class RowError(PipelineError, ValueError):
    pass


class OrderError(PipelineError):
    pass


class SendFailed(PipelineError):
    pass


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Keep our stack out of what Spark shows of an expected error. With LOCKSTEP_DEBUG=1 the stack is shown."""
    try:
        yield
    except (PipelineError, ClientError):
        if not os.environ.get("LOCKSTEP_DEBUG"):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise
