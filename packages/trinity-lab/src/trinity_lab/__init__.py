"""``trinity sweep``, ``compare``, ``eval`` and ``export``: from runs to a result."""
