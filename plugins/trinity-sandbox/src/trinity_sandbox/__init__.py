"""Programs that a model wrote: where they run, and a workflow that rewards them, as a plugin."""
