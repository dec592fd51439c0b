"""What an endpoint is told of its role and its limits."""

from dataclasses import dataclass

from lockstep.protocol.codes import FRAME_BYTES_MAX

__all__ = ["EndpointSettings"]


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """`idle_close_ms`: a connection without traffic either way is closed (wire.md 1.1)."""

    server: bool
    idle_close_ms: int = 120_000
    write_high_water_bytes: int = 1024 * 1024
    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = FRAME_BYTES_MAX
