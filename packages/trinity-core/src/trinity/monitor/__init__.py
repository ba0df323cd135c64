"""Where the metrics of a run go."""
