"""What can be wrong with bytes, seen from here.

ProtocolError
├── LocalProtocolError     we were about to send something illegal
└── RemoteProtocolError    the peer sent something illegal
    ├── FrameError         the byte stream cannot be read on: the connection must close
    ├── HeaderError        one request is unreadable: answer it with SYSTEM_ERROR and go on
    └── BodyError          likewise, in its body
"""

__all__ = [
    "BodyError",
    "FrameError",
    "HeaderError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
]


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
