"""Rules for the tests, and signed requests."""

from pathlib import Path
from typing import Any

from lockstep.broker.acl.control import AccessControl
from lockstep.broker.acl.files import AclFiles
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.signature import Credentials, sign
from lockstep.remoting.host.os_storage import OsStorage
from tests.remoting.helpers import RecordingLog

ADMIN = Credentials("adminadmin", "secret-admin")
ACCOUNT = Credentials("account1", "secret-1234")
HOST = "192.0.2.7"
RULES = """\
globalWhiteRemoteAddresses:
- 10.9.9.*
accounts:
- accessKey: adminadmin
  secretKey: secret-admin
  admin: true
- accessKey: account1
  secretKey: secret-1234
  whiteRemoteAddress: 10.1.1.1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - denied=DENY
  - both=PUB|SUB
  - read=SUB
  - written=PUB
  groupPerms:
  - closed=DENY
  - open=PUB|SUB
  - writes=PUB
"""


def rules_file(folder: Path, text: str = RULES) -> Path:
    path = folder / "plain_acl.yml"
    path.write_text(text, encoding="utf-8")
    return path


def files(folder: Path, text: str = RULES, log: RecordingLog | None = None) -> AclFiles:
    return AclFiles(OsStorage(), str(rules_file(folder, text)), log or RecordingLog())


def control(folder: Path, **options: Any) -> AccessControl:
    return AccessControl(files(folder), **options)


def signed(code: int, fields: dict[str, Any], body: bytes = b"", account: Credentials = ACCOUNT) -> RemotingCommand:
    command = RemotingCommand(code, body=body, ext_fields=fields)
    sign(command, account)
    return command
