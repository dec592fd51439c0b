"""h2's state of one connection, without checks that this broker does not need.

h2 does the protocol: frames, the states of calls, windows. It writes to no transport.
"""

from typing import Final

import h2.config
import h2.connection
import h2.settings

from lockstep.broker.fronts.grpc.http2.headers import Decoder, Encoder

__all__ = ["Machine", "new_machine"]

# What the peer may send before it is acknowledged: a message of 4 MiB comes in one go.
_STREAM_WINDOW_BYTES: Final = 1024 * 1024
_HEADER_LIST_BYTES_MAX: Final = 16_384
_LOOKED_AT_MIN: Final = 64
_KNOWN_SETTINGS: Final = frozenset(h2.settings.SettingCodes)


class Machine(h2.connection.H2Connection):
    """See `H2Connection`."""

    MAX_CLOSED_STREAMS: int = 4096  # of calls: frames may come for those that ended just now

    _looks_at = _LOOKED_AT_MIN

    @property
    def open_inbound_streams(self) -> int:
        """At most so many calls are open.

        h2 asks at each new call, and looks at all calls then. Here it looks when the number of those that it keeps has
        doubled since.
        """
        kept = len(self.streams)
        if kept < self._looks_at:
            return kept
        count = super().open_inbound_streams
        self._looks_at = min(max(2 * count, _LOOKED_AT_MIN), self.local_settings.max_concurrent_streams)
        return count


class _PeerSettings(h2.settings.Settings):
    """Those that HTTP/2 knows; others must be ignored (RFC 9113, 6.5.2).

    A peer could name 65,536 of them: each takes 700 bytes, and all are looked at again after each frame of settings.
    """

    def __setitem__(self, key: h2.settings.SettingCodes | int, value: int) -> None:
        if key in _KNOWN_SETTINGS:
            super().__setitem__(key, value)


def new_machine(streams_max: int) -> Machine:
    """The side of the server.

    Args:
        streams_max: Calls that may be open at once.
    """
    config = h2.config.H2Configuration(
        client_side=False,
        header_encoding=None,
        # What this process writes is right. Of what it reads it looks at a few headers, and passes none on to others,
        # for whom h2 checks them. A check costs a look at every header.
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
        validate_inbound_headers=False,
        normalize_inbound_headers=False,
    )
    made = Machine(config)
    codes = h2.settings.SettingCodes
    made.local_settings = h2.settings.Settings(
        client=False,
        initial_values={
            codes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
            codes.MAX_CONCURRENT_STREAMS: streams_max,
            codes.MAX_HEADER_LIST_SIZE: _HEADER_LIST_BYTES_MAX,
        },
    )
    # h2 sets it only when the peer has acknowledged the settings.
    made.remote_settings = _PeerSettings(client=True)
    made.encoder, made.decoder = Encoder(), Decoder()
    made.decoder.max_header_list_size = _HEADER_LIST_BYTES_MAX
    return made
