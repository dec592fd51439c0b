"""Header encodings, one module each; `CODECS` is the table from the type byte to its codec.

The ROCKETMQ binary header (type 1) has its place here as `rocketmq_header`.
"""

from lockstep.protocol.codecs import json_header, msgpack_header
from lockstep.protocol.codecs.base import DecodedHeader, HeaderCodec

__all__ = ["CODECS", "DecodedHeader", "HeaderCodec", "json_header", "msgpack_header"]

CODECS: dict[int, HeaderCodec] = {0: json_header, 2: msgpack_header}
