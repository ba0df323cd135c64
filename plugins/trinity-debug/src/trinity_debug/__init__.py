"""``trinity debug`` and ``trinity perf``: look into one task, or into the time of a run's steps."""
