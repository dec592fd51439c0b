"""The contexts of a user: a JSON file that only its owner may read."""

import json
import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from lockstep.cli.access import TlsMode
from lockstep.cli.output import CliError, OutputFormat, UsageError
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group
from lockstep.remoting.host.atomic_write import replace_file
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.settings import SettingError, parse_addresses
from lockstep.remoting.texts import known_names

__all__ = ["LOCK_MODES", "Context", "ContextFile", "Contexts", "check_name", "decode", "encode"]

LOCK_MODES: Final = ("faithful", "fenced")
_LOCK_LIVE_MIN_MS: Final = 3000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION: Final = 1
_FILES: Final = ("tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A cluster, and defaults of the commands that talk to it.

    Args:
        name_server: HOST:PORT, with ';' between several.
        group: Of the commands that look at one group or join it.
        lock_mode: "fenced": `lockstep consume` owns its queues under fenced locks.
        lock_live_ms: The brokers' life of a lock.
        output: "table" or "json".
        access_key, secret_key: An account, for brokers with ACL.
        tls: A word of TlsMode; None: on when a file is given, else off.
        tls_ca, tls_cert, tls_key: Absolute paths of files, PEM. The password of a key is never kept.
    """

    name_server: str
    group: str | None = None
    lock_mode: str | None = None
    lock_live_ms: int | None = None
    output: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError that names the field and what is allowed."""
        for name, value in asdict(self).items():
            kind = int if name == "lock_live_ms" else str
            unset = value is None and name != "name_server"
            if not unset and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ValueError(f"{name} must be a {'whole number' if kind is int else 'text'}")
        try:
            parse_addresses(self.name_server)
            if self.group is not None:
                check_group(self.group)
        except (SettingError, LocalProtocolError) as error:
            raise ValueError(str(error)) from None
        _check_word("lock_mode", self.lock_mode, LOCK_MODES)
        _check_word("output", self.output, tuple(OutputFormat))
        if self.lock_live_ms is not None and self.lock_live_ms < _LOCK_LIVE_MIN_MS:
            raise ValueError(f"lock_live_ms must be {_LOCK_LIVE_MIN_MS} or more")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together")
        _check_word("tls", self.tls, tuple(TlsMode))
        for name in _FILES:
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                raise ValueError(f"{name} must be an absolute path")
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tls_key needs tls_cert")


def _check_word(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}")


_FIELDS: Final = tuple(one.name for one in fields(Context))


@dataclass(frozen=True)
class Contexts:
    """All contexts by name; `current` is the one that commands take without --context."""

    current: str | None = None
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises CliError that names the known ones."""
        if name not in self.by_name:
            listed = known_names(name, sorted(self.by_name), "`lockstep context list`", begin="known are")
            known = listed if self.by_name else "there are none"
            raise CliError(f"no context {name!r}; {known} (`lockstep context add` makes one)")
        return self.by_name[name]


def check_name(name: str) -> str:
    """Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"context name {name!r}: give up to 64 letters, digits and . _ -, a letter or digit first")
    return name


def encode(contexts: Contexts) -> bytes:
    known = {
        name: {key: value for key, value in asdict(one).items() if value is not None}
        for name, one in sorted(contexts.by_name.items())
    }
    return (json.dumps({"version": _VERSION, "current": contexts.current, "contexts": known}, indent=2) + "\n").encode()


def decode(data: bytes) -> Contexts:
    """Raises ValueError with what is wrong, and where."""
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, character {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict) or value.get("version") != _VERSION:
        raise ValueError(f"it is no object with version {_VERSION}")
    current, table = value.get("current"), value.get("contexts")
    if not isinstance(table, dict):
        raise ValueError("field 'contexts' must be an object")
    by_name = {name: _decoded(name, fields_of) for name, fields_of in table.items()}
    if current is not None and (not isinstance(current, str) or current not in by_name):
        raise ValueError(f"the current context {current!r} is not among its contexts")
    return Contexts(current, by_name)


def _decoded(name: str, value: Any) -> Context:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"context {name!r}: no such name is allowed")
    if not isinstance(value, dict) or "name_server" not in value:
        raise ValueError(f"context {name!r}: it must be an object with a name_server")
    unknown = [key for key in value if key not in _FIELDS]
    if unknown:
        raise ValueError(f"context {name!r}: unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    try:
        return Context(**value)
    except ValueError as error:
        raise ValueError(f"context {name!r}: {error}") from None


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a number without a name, as in containers
        return ""


class ContextFile:
    """`lockstep/contexts.json` in the user's folder of settings (XDG_CONFIG_HOME, else ~/.config)."""

    def __init__(self, storage: Storage) -> None:
        given = os.environ.get("XDG_CONFIG_HOME", "")
        if not given.startswith("/"):  # a relative one is not valid
            given = f"{os.environ.get('HOME') or _home()}/.config"
        self.path = f"{given}/lockstep/contexts.json"
        self._storage = storage

    def read(self) -> Contexts:
        """No contexts without a file. Raises CliError for a file that cannot be read, or is damaged."""
        try:
            return decode(self._storage.read_file(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return Contexts()
        except OSError as error:
            raise CliError(f"cannot read the contexts in {self.path}: {error.strerror}") from None
        except ValueError as error:
            raise CliError(
                f"the contexts in {self.path} are damaged: {error}; correct the file, or remove it and add them again"
            ) from None

    def write(self, contexts: Contexts) -> None:
        """Replace the file; only its owner may read it. Raises CliError."""
        before = os.umask(0o077)  # the file is made with mode 0600
        try:
            with suppress(FileNotFoundError):  # left by a crash, with whatever mode
                self._storage.delete(self.path + ".tmp")
            replace_file(self._storage, self.path, encode(contexts))
        except OSError as error:
            raise CliError(f"cannot write the contexts to {self.path}: {error.strerror}") from None
        finally:
            os.umask(before)
