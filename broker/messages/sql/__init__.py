"""SQL92 filters on the properties of messages (wire.md 6.5). Import it only to compile an expression."""
