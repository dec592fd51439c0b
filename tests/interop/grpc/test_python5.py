"""The numbers of the messages of RocketMQ's own Python client of gRPC are ours."""

import ast
import base64
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from lockstep.protocol.grpc.descriptor import FILES
from tests.interop.harness.installed import require


def described(folder: Path) -> Iterator[FileDescriptorProto]:
    """What protoc's modules hold. They are read, not imported: their messages would meet ours in one table."""
    for path in sorted(folder.glob("*_pb2.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(value=bytes(data))]):
                    yield FileDescriptorProto.FromString(data)


def numbers(file: FileDescriptorProto) -> dict[str, object]:
    """Each field with its number and type, and each value of an enum."""
    found: dict[str, object] = {}
    for message in file.message_type:
        for field in message.field:
            kind = (field.label, field.type, field.type_name, field.proto3_optional, field.HasField("oneof_index"))
            found[f"{message.name}.{field.name}"] = (field.number, *kind)
    for enum in file.enum_type:
        found.update({f"{enum.name}.{value.name}": value.number for value in enum.value})
    return found


def test_our_numbers_are_those_of_its_descriptor() -> None:
    """Whatever messaging.proto has, the client has with the same number and type."""
    theirs: dict[str, object] = {}
    for file in described(require("python5") / "rocketmq" / "grpc_protocol"):
        theirs |= numbers(file)
    (ours,) = FileDescriptorSet.FromString(base64.b64decode(FILES)).file
    assert ours.package == "apache.rocketmq.v2"
    assert {name: theirs.get(name) for name in numbers(ours)} == numbers(ours)
