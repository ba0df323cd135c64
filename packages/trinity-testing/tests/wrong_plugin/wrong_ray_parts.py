"""A reward function that only the first process of a run can import."""

import sys
from pathlib import Path

from trinity.common.rewards import RewardFn

if Path(sys.argv[0]).name == "default_worker.py":
    raise ImportError("the licence file lies on the machine of the person who started the run")


class StaysAtHome(RewardFn):
    """Reads a file that only the first process has."""

    def __call__(self, **kwargs):
        return {"licensed": 1.0}
