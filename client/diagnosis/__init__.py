"""Why a cluster does not go on, or will break order: facts, read once, and tables of rules over them."""
