"""Settings as tools read and change them: lines of name=value under RocketMQ's names (wire.md 2.4, 2.7)."""

from collections.abc import Mapping
from typing import TypeVar

from lockstep.remoting.settings import SettingError, live_properties, parse_properties, with_properties

__all__ = ["encode_settings", "updated_settings"]

C = TypeVar("C")


def encode_settings(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={settings[name]}\n" for name in sorted(settings)).encode("utf-8")


def updated_settings(config: C, body: bytes) -> tuple[C, list[str]]:
    """`config` with those changes of a request that a running server can take over, and why the others were left out.

    RocketMQ takes every line without a word, also those that it cannot read, does not know or reads only at its start;
    so no line is an error here, but what has no effect is for the log.
    """
    live = live_properties(config)
    ignored = []
    for line in body.decode("utf-8", "replace").splitlines():
        try:
            for name, value in parse_properties(line).items():
                if name in live:
                    config = with_properties(config, {name: value})
                else:
                    ignored.append(f"{name}: cannot be changed at run time; these can: {', '.join(sorted(live))}")
        except SettingError as error:
            ignored.append(str(error))
    return config, ignored
