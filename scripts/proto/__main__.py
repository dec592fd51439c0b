"""Writes protocol/grpc/descriptor.py and messages.pyi from messaging.proto. Needs grpcio-tools.

The modules that protoc writes are not used: they fit one major version of protobuf alone, and enter all messages into
one table of the process, where those of RocketMQ's own Python client may be, too.
"""

import base64
import hashlib
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "protocol" / "grpc"
PROTO = "messaging.proto"
WIDTH = 112


def main() -> None:
    """Run protoc, and write both files."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "descriptor"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}", f"--descriptor_set_out={found}"]
        if subprocess.run([*command, f"--pyi_out={folder}", PROTO], check=False).returncode:
            sys.exit("proto: protoc failed; it comes with grpcio-tools: pip install grpcio-tools")
        data = found.read_bytes()
        stub = (Path(folder) / "messaging_pb2.pyi").read_text(encoding="utf-8")
    (FOLDER / "descriptor.py").write_text(_module(data), encoding="utf-8")
    (FOLDER / "messages.pyi").write_text(_stub(stub), encoding="utf-8")


def _module(data: bytes) -> str:
    source = hashlib.sha256((FOLDER / PROTO).read_bytes()).hexdigest()
    lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(base64.b64encode(data).decode(), WIDTH))
    return (
        f'"""The messages of {PROTO}, as a FileDescriptorSet in base64. Written by scripts/proto."""\n\n'
        "from typing import Final\n\n"
        '__all__ = ["FILES", "SOURCE_SHA256"]\n\n'
        f'SOURCE_SHA256: Final = "{source}"\n'
        f"FILES: Final = (\n{lines}\n)\n"
    )


def _stub(text: str) -> str:
    """For type checkers: what messages.py makes at run time."""
    more = "Duration = _duration_pb2.Duration\nTimestamp = _timestamp_pb2.Timestamp\n"
    return f"# Written by scripts/proto.\n{text.replace(', _Mapping]', ']')}\n{more}"


if __name__ == "__main__":
    main()
