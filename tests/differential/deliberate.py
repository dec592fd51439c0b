"""Differences of whole servers that are meant, as build/fidelity.md tells them."""

from typing import Final

__all__ = ["DELIBERATE"]

DELIBERATE: Final = (
    (
        "QUERY_CORRECTION_OFFSET (308) only reads. In RocketMQ it takes the committed offsets of the groups that it is "
        "to leave out away for good, so it is asked after everything that reads offsets."
    ),
    (
        "What stands behind a whole SQL92 expression is refused, as in a = 1 b = 2; RocketMQ's parser stops before it. "
        "No case asks so."
    ),
    (
        "A server tells its own settings (26, 319), and RocketMQ's has many more than ours: only those that both have "
        "are compared. Of runtime information (28) the names are compared, not the values, which one process measures "
        "of itself."
    ),
    (
        "Settings that cannot be changed while a server runs are logged; RocketMQ says nothing anywhere. Both answer "
        "SUCCESS (25, 318)."
    ),
    (
        "Our name server answers a code that it does not know with REQUEST_CODE_NOT_SUPPORTED (3). Apache's is silent, "
        "and the asker waits for its timeout."
    ),
    "Replies carry the language PYTHON and the version 409 (V4_9_8), Apache's JAVA and their own version.",
    (
        "The text of a remark is ours, except in replies to pulls, where it is the name of a status that clients read. "
        "Where Apache's is the text of a Java exception, the code is the same."
    ),
    (
        "A server of ours speaks a third header encoding with a peer that agreed to it, and codes from 30001 on with "
        "such a peer only; Apache has neither."
    ),
)
