"""Stories with a name: what ordered consumption does when something fails, in a few lines each."""
