"""The checks of a broker with fenced locks: which pulls, commits and send-backs it refuses."""
