"""Harbor task directories, run in a sandbox without Docker, as a plugin."""
