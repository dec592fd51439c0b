"""The five articles as lessons: what to watch in a run, a question, a touch that shows the answer, and why."""
