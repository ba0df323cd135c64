"""The rooms of a run as Ray actors: the same rooms, each in a process of its own."""
