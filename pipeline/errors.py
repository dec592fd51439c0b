"""What a user of the data source can meet. Spark shows the text inside an error of its own.

PipelineError
├── OptionError        an option that cannot be; the text names it and says what is allowed
├── TopicError         a topic or a queue that is not there, or may not be read or written
├── DataLossError      offsets that were to be read are gone; the text names them
├── RecordError        a stored message that cannot be read
├── ColumnError        a DataFrame cannot be sent: the text names the column and the types it may have
├── RowError           one of its rows cannot be sent; the text says which and why
├── OrderError         what was to be sent, or was, is not in order
└── SendFailed         a broker refused messages, or nobody knows whether it stored them

What goes wrong between two sockets is `lockstep.remoting.errors`.
"""

__all__ = [
    "ColumnError",
    "DataLossError",
    "OptionError",
    "OrderError",
    "PipelineError",
    "RecordError",
    "RowError",
    "SendFailed",
    "TopicError",
]


class PipelineError(Exception):
    """Never raised itself; catch it to catch every error of this package."""


class OptionError(PipelineError, ValueError):
    pass


class TopicError(PipelineError):
    pass


class DataLossError(PipelineError):
    pass


class RecordError(PipelineError):
    pass


class ColumnError(PipelineError, ValueError):
    pass


class RowError(PipelineError, ValueError):
    pass


class OrderError(PipelineError):
    pass


class SendFailed(PipelineError):
    pass
