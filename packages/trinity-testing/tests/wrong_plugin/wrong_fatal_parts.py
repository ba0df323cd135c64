"""A reward function whose library ends a process that it does not like."""

import os
import sys
from pathlib import Path

from trinity.common.rewards import RewardFn

if Path(sys.argv[0]).name == "default_worker.py":
    os._exit(3)


class EndsTheWorker(RewardFn):
    """Ends the process that imports it, if that is a worker."""

    def __call__(self, **kwargs):
        return {"alive": 1.0}
