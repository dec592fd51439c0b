"""The lab of ordered consumption: clusters on virtual time, random worlds, and the search for broken order."""
