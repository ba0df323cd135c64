"""The room where workflows run: tasks in, experiences out."""
