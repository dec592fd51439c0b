"""Settings of consumers and brokers as people write them: NAME=VALUE, by the names of docs/settings.md."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.client import ConsumerConfig
from lockstep.remoting.settings import SettingError, with_properties
from lockstep.remoting.texts import known_names

__all__ = ["read_settings", "setting_owners"]

_CONFIGS: Final[dict[str, Any]] = {"consumer": ConsumerConfig, "broker": BrokerConfig}
_LOCK_MODE, _STORE, _SIMULATOR = "use --lock-mode", "use --store", "the simulator sets it"
_TAKEN: Final = {
    "consumer": {"fenced": _LOCK_MODE},
    "broker": {
        "lock_mode": _LOCK_MODE,
        "data_dir": _STORE,
        "flush_sync": _STORE,
        **dict.fromkeys(
            ("host", "advertise", "port", "vip_channel", "name_server_port", "serve_broker", "serve_name_server",
             "name_servers", "broker_name", "cluster", "broker_id", "trace"),
            _SIMULATOR,
        ),
    },
}  # fmt: skip


def read_settings(whose: str, texts: Iterable[str], present: Mapping[str, Any]) -> dict[str, Any]:
    """Values by our names.

    Args:
        whose: "consumer" or "broker".
        texts: "pull_batch_size=8", under our name or RocketMQ's.
        present: what is set already, which the new values must not contradict.

    Raises:
        SettingError: what is wrong and what is allowed, in one line.
    """
    kind = _CONFIGS[whose]
    ours = _names(kind)
    properties: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if why := "write NAME=VALUE" if not equals else _why_not(whose, name, ours):
            raise SettingError(f"--{whose} {text}: {why}")
        properties[name] = value
    try:
        config = with_properties(kind(**{name: value for name, value in present.items() if name in ours}), properties)
    except SettingError as error:
        raise SettingError(f"--{whose}: {error}") from None
    return {ours[name]: getattr(config, ours[name]) for name in properties}


def setting_owners(name: str) -> tuple[str, ...]:
    """Who has a setting of this name, ours or RocketMQ's, which may be set: "consumer", "broker", both, nobody."""
    return tuple(whose for whose, kind in _CONFIGS.items() if not _why_not(whose, name, _names(kind)))


def _names(kind: Any) -> dict[str, str]:
    """Every name of a setting that is written as text, RocketMQ's and ours -> ours."""
    shown = {one.name: one for one in fields(kind) if one.metadata.get("text", True)}
    return {one.metadata.get("property", name): name for name, one in shown.items()} | {name: name for name in shown}


def _why_not(whose: str, name: str, ours: Mapping[str, str]) -> str:
    taken = _TAKEN[whose]
    if name in ours:
        return taken.get(ours[name], "")
    allowed = sorted(one for one, own in ours.items() if own not in taken)
    return f"a {whose} has no such setting; {known_names(name, allowed, 'docs/settings.md')}"
