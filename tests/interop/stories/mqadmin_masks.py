"""What of mqadmin's output is no part of a comparison: each mask has its reason."""

import re
from typing import NamedTuple

__all__ = ["MASKS", "Mask", "errors_of", "masked"]


class Mask(NamedTuple):
    """A pattern, what is shown in its place, and why."""

    what: str
    shown: str
    why: str


MASKS = (
    Mask(r"[\d.]+@driver-\d+-\d+", "CLIENT", "client ids hold a process id and a clock"),
    Mask(r"\b127\.0\.0\.1:\d+", "HOST:PORT", "both run on free ports, clients on ephemeral ones"),
    Mask(
        r"\b([0-9A-F]{56}|[0-9A-F]{32})\b", "MESSAGE-ID", "ids hold addresses, process ids, places in a log and times"
    ),
    Mask(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:.]\d{3})?", "TIME", "when it happened"),
    Mask(r"\b1[789]\d{11}\b", "MILLISECONDS", "when it happened, as epoch milliseconds"),
    Mask(r"(?i)(commitlog ?offset(:\s*|=))\d+", r"\1PLACE", "other topics' messages lie between, in no fixed order"),
    Mask(r"physicOffset=\d+", "physicOffset=PLACE", "the same"),
    Mask(
        r"\bV4_9_[78]\b", "V4_9_X", "Maven Central has no broker of 4.9.8: Apache's is 4.9.7, ours says what 4.9.8 does"
    ),
    Mask(r"DESC: .*?( BROKER: |\n|$)", r"DESC: WORDS\1", "remarks are for people, and ours are in our own words"),
)


def masked(output: str, masks: tuple[Mask, ...] = ()) -> list[str]:
    """The lines of an output without what may differ; the padding of columns goes with it."""
    for mask in (*masks, *MASKS):
        output = re.sub(mask.what, mask.shown, output, flags=re.MULTILINE)
    return [re.sub(r"[ \t]+", " ", line).strip() for line in output.splitlines() if line.strip()]


def errors_of(errors: str) -> list[str]:
    """The lines of stack traces that say what happened, without where."""
    return [line for line in masked(errors) if not re.match(r"at |\.\.\. \d+ more", line)]
