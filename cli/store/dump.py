"""`lockstep store dump`: prints the messages of a store's folder in the order of the log."""

from typing import Final

from lockstep.cli.format import format_json, parse_format
from lockstep.cli.options import DumpOptions
from lockstep.cli.output import CliError, note, write_out
from lockstep.cli.store.inspect import opened_store
from lockstep.protocol.bodies.config import StoredTopics
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.texts import known_names
from lockstep.store.check.files import Damage, read_config, scan_log
from lockstep.store.format.files import FileRun, names_in, queue_folders
from lockstep.store.format.layout import ABORT, COMMIT_LOG

__all__ = ["dump_store"]

_BATCH_BYTES: Final = 65_536


def dump_store(options: DumpOptions) -> None:
    """Print messages in the order of the log. Damage is noted on stderr, and the dump goes on after it.

    Raises CliError for a topic or queue that does not exist.
    """
    shown = parse_format(options.format) if options.format is not None else format_json
    root = options.folder.rstrip("/") or "/"
    with opened_store(root) as storage:
        known, lines = _known(storage, root), _Lines()
        log = FileRun.found(storage, root, COMMIT_LOG)
        if ABORT not in names_in(storage, root):  # after a crash the log may have more queues
            _check_asked(root, options, known)
        for found in scan_log(log):
            if isinstance(found, Damage):
                note(f"{found.file}, byte {found.position}: {found.text}")
                continue
            known.setdefault(found.topic, {})[found.queue_id] = None
            if found.topic != (options.topic or found.topic) or found.queue_offset < options.offset:
                continue
            if options.queue not in (None, found.queue_id):
                continue
            if lines.count == options.count:
                break
            (message,) = decode_messages(log.read(found.offset, found.size_bytes))
            lines.add(shown(message))
        lines.write()
        _check_asked(root, options, known)


class _Lines:
    """Output that is written in large pieces."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, line: bytes) -> None:
        self.count += 1
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _BATCH_BYTES:
            self.write()

    def write(self) -> None:
        write_out(b"".join(self._waiting))
        self._waiting, self._waiting_bytes = [], 0


_Known = dict[str, dict[int, None]]  # topic -> ids of its queues


def _known(storage: Storage, root: str) -> _Known:
    known: _Known = {}
    for topic, queue_id in queue_folders(storage, root):
        known.setdefault(topic, {})[queue_id] = None
    try:
        table = read_config(storage, root, "topics.json")
    except (FileNotFoundError, ProtocolError):
        return known
    assert isinstance(table, StoredTopics)
    for config in table.topics:
        known.setdefault(config.topic_name, {}).update(dict.fromkeys(range(config.read_queue_nums)))
    return known


def _check_asked(root: str, options: DumpOptions, known: _Known) -> None:
    """Raises CliError for a topic or queue that does not exist."""
    if options.topic is None:
        return
    if options.topic not in known:
        topics = known_names(options.topic, sorted(known), f"`lockstep store inspect {root}`", begin="there are:")
        raise CliError(f"{root} has no topic {options.topic!r}; {topics}")
    queues = known[options.topic]
    if options.queue is not None and options.queue not in queues:
        there = known_names(
            str(options.queue), list(map(str, sorted(queues))), f"`lockstep store inspect {root}`", begin="there are:"
        )
        raise CliError(f"topic {options.topic!r} has no queue {options.queue}; {there}")
