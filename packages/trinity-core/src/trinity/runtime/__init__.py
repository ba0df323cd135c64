"""Which workers a run has, and in which process they live."""
