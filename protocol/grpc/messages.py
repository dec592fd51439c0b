"""The messages and enums of apache.rocketmq.v2, made of their descriptor when this module is imported.

They are in a table of their own: the process may have those of RocketMQ's Python client as well.
"""

import base64

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.internal import enum_type_wrapper

from lockstep.protocol.grpc.descriptor import FILES

_POOL = descriptor_pool.DescriptorPool()
for _module in (duration_pb2, timestamp_pb2):
    _POOL.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
(_given,) = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(FILES)).file
_POOL.Add(_given)
_FILE = _POOL.FindFileByName(_given.name)

for _name, _message in _FILE.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_message)
for _name, _enum in _FILE.enum_types_by_name.items():
    globals()[_name] = enum_type_wrapper.EnumTypeWrapper(_enum)
    globals().update({_value.name: _value.number for _value in _enum.values})
Duration = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("google.protobuf.Duration"))
Timestamp = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("google.protobuf.Timestamp"))
