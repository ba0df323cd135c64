"""Which rooms a run has, and in which process they live."""
