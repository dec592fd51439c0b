"""The sections of the five articles, in their order: which story shows each, and what of it."""
