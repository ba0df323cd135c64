"""One task, run once, where it can be watched: nothing is trained, nothing is written."""
