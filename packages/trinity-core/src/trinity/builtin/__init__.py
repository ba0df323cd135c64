"""Our own plugins: names and references only."""
