"""Python imports this first in each process that has the folder on its path."""

import step_tracer

step_tracer.install()
