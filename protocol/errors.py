"""Errors in received data and in data to send, and the base of all errors that a client raises.

ClientError                every error of a client; the other ones are in the `errors` of `remoting` and `client`
└── ProtocolError
    ├── LocalProtocolError     this process tried to send illegal data
    └── RemoteProtocolError    the peer sent illegal data
        ├── FrameError         the byte stream is unreadable: close the connection
        ├── HeaderError        a header is unreadable: close the connection; a field is wrong: answer SYSTEM_ERROR
        └── BodyError          a body does not fit its request: answer SYSTEM_ERROR
"""

__all__ = [
    "BatchTooLong",
    "BodyError",
    "ClientError",
    "FrameError",
    "HeaderError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "short_text",
]

_SHOWN_MAX = 80


class ClientError(Exception):
    """The base class of all errors that a client raises, so that one `except` catches them."""


class ProtocolError(ClientError):
    """The base class of all errors of this package. It is never raised itself."""


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
    """A batch has too many messages. Its messages up to the limit are valid."""


def short_text(value: object) -> str:
    """A short text of a peer's value for error messages, however long or nested the value is."""
    if isinstance(value, (str, bytes)):
        return repr(value) if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]!r}..."
    if value is None or isinstance(value, (bool, int, float)):
        text = repr(value)
        return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return f"a {type(value).__name__}"
