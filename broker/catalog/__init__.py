"""Topics, groups, members and offsets: what a broker knows by name."""
