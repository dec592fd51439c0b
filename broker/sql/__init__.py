"""SQL92 filters on a message's properties (wire.md 6.5). Import it only when an expression is to be compiled."""
