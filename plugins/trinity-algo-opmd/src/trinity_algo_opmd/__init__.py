"""OPMD, online policy mirror descent, as a plugin."""
