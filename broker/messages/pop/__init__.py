"""POP: messages are delivered for a time, and are consumed when they are acknowledged (docs/wire.md 18)."""
