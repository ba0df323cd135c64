"""``trinity sweep`` and ``trinity compare``: many runs as one experiment."""
