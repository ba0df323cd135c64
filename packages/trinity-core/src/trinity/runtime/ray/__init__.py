"""The workers of a run as Ray actors: the same workers, each in a process of its own."""
