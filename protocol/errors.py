"""Errors of received and of own data.

ProtocolError
├── LocalProtocolError     we were about to send something illegal
└── RemoteProtocolError    the peer sent something illegal
    ├── FrameError         the byte stream cannot be read on: the connection must close
    ├── HeaderError        of a whole header: likewise; of one field: answer with SYSTEM_ERROR and go on
    └── BodyError          a body is not what its request says: answer with SYSTEM_ERROR and go on
"""

__all__ = [
    "BatchTooLong",
    "BodyError",
    "FrameError",
    "HeaderError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "shown",
]

_SHOWN_MAX = 80


class ProtocolError(Exception):
    """Never raised itself; catch it to catch every error of this package."""


class LocalProtocolError(ProtocolError, ValueError):
    pass


class RemoteProtocolError(ProtocolError, ValueError):
    pass


class FrameError(RemoteProtocolError):
    pass


class HeaderError(RemoteProtocolError):
    pass


class BodyError(RemoteProtocolError):
    pass


class BatchTooLong(BodyError):
    """A batch has more messages than are allowed. Its messages up to the limit are well formed."""


def shown(value: object) -> str:
    """A peer's value for the text of an error, which becomes a remark and a log line: short, however long or deep."""
    if isinstance(value, (str, bytes)):
        return repr(value) if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]!r}..."
    if value is None or isinstance(value, (bool, int, float)):
        text = repr(value)
        return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return f"a {type(value).__name__}"
