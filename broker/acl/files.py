"""The files of rules on the disk: found, read, watched for changes, and changed by administrators."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from lockstep.broker.acl.addresses import AddressPattern
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.acl.fields import ACCOUNTS, VERSION, WHITE_ADDRESSES
from lockstep.broker.acl.permissions import Account
from lockstep.broker.acl.rules import AclFile, parse_file
from lockstep.remoting.host.atomic_write import replace_file
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.logs import EventLog

__all__ = ["FOLDER", "AclFiles", "Rules"]

FOLDER: Final = "acl"  # beside the file of rules
_ENDINGS: Final = (".yml", ".yaml")
_DEPTH_MAX: Final = 8
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """All files as one. An access key that several accounts have is the first one's."""

    files: Mapping[str, AclFile] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    file_of: Mapping[str, str] = field(default_factory=dict)  # the path, by access key
    white_addresses: tuple[AddressPattern, ...] = ()


class AclFiles:
    """The file `path`, and all YAML files in the folder `acl` beside it and below.

    To read and to write much YAML takes long, so a server calls `look` and `write` on a thread, one call after the
    other (`RulesWorker`). Any thread may read `rules`, which are replaced as a whole.

    Raises RuleError when a file cannot be read at the start. Later the old rules stay in force then.
    """

    def __init__(self, storage: Storage, path: str, log: EventLog) -> None:
        self._storage = storage
        self._log = log
        self._contents: dict[str, bytes] = {}
        self._refused: dict[str, bytes] | None = None  # what was refused last
        self.path = path
        self.rules = Rules()
        self._load(self._read_all())

    def look(self) -> bool:
        """Read the files again when one has changed. Returns whether new rules are in force."""
        contents: dict[str, bytes] | None = None
        try:
            contents = self._read_all()
            return self._use(contents)
        except (OSError, RuleError) as error:
            if contents is None or contents != self._refused:  # said once
                self._log.error("acl_file_refused", reason=str(error), effect="the old rules stay in force")
            self._refused = contents
            return False

    def catch_up(self) -> None:
        """Before a change: what others have written meanwhile stays in the files. Raises RuleError, OSError."""
        self._use(self._read_all())

    def _use(self, contents: dict[str, bytes]) -> bool:
        if contents == self._contents:
            return False
        self._load(contents)
        self._log.info("acl_reloaded", files=len(contents), accounts=len(self.rules.accounts))
        return True

    def write(self, path: str, document: dict[str, Any], now_ms: int) -> None:
        """Put a changed document into a file, with the next version, and use it. Raises RuleError, OSError."""
        before = self.rules.files.get(path, AclFile())
        document = {name: value for name, value in document.items() if name != VERSION}
        document[VERSION] = [{"counter": before.counter + 1, "timestamp": now_ms}]
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, allow_unicode=True)
        contents = {**self._contents, path: text.encode("utf-8")}
        # First combined: what would be refused is not written.
        rules = self._combined(contents)
        replace_file(self._storage, path, contents[path], private=True)  # it has secret keys
        self._storage.sync_dir(path.rpartition("/")[0] or ".")
        self._contents, self.rules = contents, rules

    def document(self, path: str) -> dict[str, Any]:
        """A copy of the content of a file, to change and to write back."""
        file = self.rules.files.get(path, AclFile())
        return deepcopy(file.document) or {WHITE_ADDRESSES: [], ACCOUNTS: []}

    def _load(self, contents: dict[str, bytes]) -> None:
        rules = self._combined(contents)
        self._contents, self.rules = contents, rules
        for path, file in rules.files.items():
            for warning in file.warnings:
                self._log.warning("acl_rule_doubtful", file=path, why=warning)
            for account in file.accounts:
                if rules.file_of[account.access_key] != path or rules.accounts[account.access_key] is not account:
                    self._log.warning("acl_key_repeated", file=path, access_key=account.access_key)

    def _read_all(self) -> dict[str, bytes]:
        folder = f"{self.path.rpartition('/')[0] or '.'}/{FOLDER}"
        contents: dict[str, bytes] = {}
        for path in [*self._listed(folder, _DEPTH_MAX), self.path]:
            try:
                contents[path] = self._storage.read_file(path)
            except FileNotFoundError:
                continue
            if len(contents[path]) > _FILE_BYTES_MAX:
                raise RuleError(f"{path}: {len(contents[path])} bytes; at most {_FILE_BYTES_MAX} are allowed")
        return contents

    def _listed(self, folder: str, depth: int) -> list[str]:
        try:
            names = self._storage.list_dir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found: list[str] = []
        for name in names:
            path = f"{folder}/{name}"
            if name.endswith(_ENDINGS):
                found.append(path)
            elif depth:
                found += self._listed(path, depth - 1)
        return found

    def _combined(self, contents: Mapping[str, bytes]) -> Rules:
        """The rules of all files; those that did not change are not read again. Raises RuleError, with the path."""
        files: dict[str, AclFile] = {}
        accounts: dict[str, Account] = {}
        file_of: dict[str, str] = {}
        patterns: list[AddressPattern] = []
        for path, content in contents.items():
            try:
                known = self._contents.get(path) == content
                files[path] = file = self.rules.files[path] if known else parse_file(content)
            except RuleError as error:
                raise RuleError(f"{path}: {error}") from None
            patterns += file.white_addresses
            for account in file.accounts:
                if account.access_key not in accounts:
                    accounts[account.access_key] = account
                    file_of[account.access_key] = path
        files.setdefault(self.path, AclFile())
        return Rules(files, accounts, file_of, tuple(patterns))
