"""ALFWorld, the household in text, as a plugin."""
