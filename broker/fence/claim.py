"""Claim: the queue that a request is about, and the period of ownership under which it comes."""

from typing import NamedTuple

__all__ = ["Claim"]


class Claim(NamedTuple):
    """`epoch` and `client_id` are None in a request of a client that has no period: an unmodified one."""

    consumer_group: str
    topic: str
    queue_id: int
    epoch: int | None = None
    client_id: str | None = None
