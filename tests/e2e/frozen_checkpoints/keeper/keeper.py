"""Keep a copy of the run directory as it is when a checkpoint has been written; be slow, or die."""

import itertools
import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.extend import hookimpl

NUM_CALLS = itertools.count(1)


@hookimpl
def trinity_checkpoint_saved(path):
    kept = Path(os.environ["KEEP_IN"])
    run, copy = Path(path).parent, kept / f"{len(list(kept.iterdir())):03}"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("*.db*"))
    for ledger in run.glob("buffer/*.db"):  # others may be writing: a copy could be torn
        with (
            closing(sqlite3.connect(ledger)) as one,
            closing(sqlite3.connect(copy / "buffer" / ledger.name)) as other,
        ):
            one.backup(other)


@REWARD_FUNCTIONS.register_module("share_of_letters")
class ShareOfLetters(RewardFn):
    def __call__(self, response=None, **kwargs):
        if next(NUM_CALLS) == int(os.environ.get("DIE_AT_CALL", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(random.uniform(0.0, 0.4))
        return {"letters": sum(map(str.isalpha, response or "")) / 8}
