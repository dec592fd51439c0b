"""The page of `lockstep-sim play`: routes, templates, its script and style, and what it says in two languages."""
