"""Parts that workers of the tests hold; found by the search path, which travels."""

import logging
import os
import sqlite3
import sys
import threading
import time
import warnings
from pathlib import Path

from trinity.extend import get_manager
from trinity.runtime.ray import engine_worker


class Shows:
    """Shows what its process is like."""

    def __init__(self, context):
        self.context = context
        self.variables = dict(os.environ)  # as they are when a part imports torch

    def about(self):
        return {
            "name": self.context.name,
            "directory": os.getcwd(),
            "variables": self.variables,
            "path": list(sys.path),
            "level": logging.getLogger("trinity").level,
            "modules": sorted(sys.modules),
            "plugins": [record.name for record in self.context.manager.unloaded_records()],
        }

    def arguments(self):
        return self.context.config.buffer.explorer_input.taskset.workflow_args

    def call_argument(self, name, *args):
        return self.arguments()[name](*args)

    def load(self, kind, name):
        found = get_manager().load(kind, name)
        return f"{found.__module__}:{found.__qualname__}", found.value

    def say(self):
        logging.getLogger("trinity.test").warning("mind the step")
        logging.getLogger("trinity.test").info("all is well")
        print("one line,", "printed")  # noqa: T201 -- what is tested
        warnings.warn("one warned line", stacklevel=1)

    def fail(self):
        raise KeyError("no such thing")

    def fail_oddly(self):
        class OddError(Exception):
            def __reduce__(self):
                raise TypeError("not to be sent")

        raise OddError("odd")


class BuiltForLong:
    """Is being built until a file is there."""

    def __init__(self, context):
        files = context.config.buffer.explorer_input.taskset.workflow_args
        Path(files["begun"]).touch()
        while not Path(files["may_go_on"]).exists():
            time.sleep(0.01)
        self.state = "built"

    def answer(self):
        return self.state


class BoundToItsThread:
    """Has, as a trainer may, what only the thread that made it may use."""

    def __init__(self, context):
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table steps (number)")
        self.goes_on = threading.Event()

    def step(self):
        self.database.execute("insert into steps values (1)")
        ((num_steps,),) = self.database.execute("select count(*) from steps")
        return num_steps

    def copy_for_long(self):
        return self.goes_on.wait(60)

    def go_on(self):
        self.goes_on.set()


class HoldsAnEngine(engine_worker.EngineWorker):
    """An engine's worker whose engine answers nothing until it is told to."""

    def __init__(self, context):
        from trinity_testing.engines import ScriptedEngine

        self.scripted = ScriptedEngine("one", "two")
        self.scripted.hold()
        engine_worker.make_engine = lambda config, manager: self.scripted
        super().__init__(context, number=0)
        self.load_weights(None)
        self.serve()

    def num_open(self):
        return self.scripted.num_open

    def release(self):
        self.scripted.release()
