"""The header encodings, one in each module. `CODECS` maps the type byte of a frame to its codec."""

from lockstep.protocol.codecs import json_header, msgpack_header, rocketmq_header
from lockstep.protocol.codecs.base import DecodedHeader, HeaderCodec

__all__ = ["CODECS", "DecodedHeader", "HeaderCodec", "json_header", "msgpack_header", "rocketmq_header"]

CODECS: dict[int, HeaderCodec] = {0: json_header, 1: rocketmq_header, 2: msgpack_header}
