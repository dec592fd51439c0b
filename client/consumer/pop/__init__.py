"""A push consumer in POP mode: no queue is owned, the broker delivers messages for a time (docs/wire.md 18)."""
