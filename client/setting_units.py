"""The units of settings that RocketMQ writes differently: Lockstep has milliseconds and bytes everywhere."""

import re
from datetime import UTC, datetime
from typing import Final

from lockstep.remoting.settings import Unit, scaled

__all__ = ["LOCAL_TIME", "MIB", "MINUTES"]

_TIMESTAMP_FORMAT: Final = "%Y%m%d%H%M%S"


def _moment_ms(text: str) -> int:
    """Raises ValueError. strptime alone accepts fewer digits and guesses their meaning."""
    if not re.fullmatch(r"\d{14}", text, re.ASCII):
        raise ValueError(text)
    return int(datetime.strptime(text, _TIMESTAMP_FORMAT).astimezone().timestamp() * 1000)


def _moment_text(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().strftime(_TIMESTAMP_FORMAT)


MINUTES: Final = scaled(60 * 1000, "a whole number of minutes")
MIB: Final = scaled(1024 * 1024, "a whole number of MiB")
LOCAL_TIME: Final = Unit(_moment_ms, _moment_text, "a local time as yyyyMMddHHmmss, such as 20131223171201")
