"""An environment for processes: counts, prints, and fails in every way when it is told to."""

import os
import re
import signal
import subprocess
import sys
import time

from trinity.errors import BadTaskError


class Counter:
    def __init__(self, size=3):
        self.size = size
        self.num_loads = self.num_steps = 0
        self.game = None
        print("made")  # noqa: T201 - what environments do

    def load(self, game):
        if game == "no such game":
            raise FileNotFoundError(game)
        if game == "a game of words":
            raise BadTaskError("that is no game of mine")
        self.game = game
        self.num_loads += 1

    def reset(self):
        self.num_steps = 0
        return f"You are in {self.game}.", {"loads": self.num_loads}

    def step(self, action):
        print("noise on stdout")  # noqa: T201
        os.write(1, b"noise below Python\n")
        if action in TROUBLE:
            TROUBLE[action]()
        self.num_steps += 1
        return action.upper(), 0.5, self.num_steps >= self.size, {"pid": os.getpid()}

    def echo(self, value):
        return value

    def unsendable(self):
        return lambda: 1

    def starts(self):
        """Return the number of a process that it starts, and that nobody ends."""
        return subprocess.Popen(["sleep", "1000"]).pid

    def close(self):
        if self.game == "bad":
            raise RuntimeError("the game cannot be saved")
        if self.game and str(self.game).startswith("/"):
            with open(self.game, "a") as file:
                file.write("closed\n")


class HangsAtTheEnd:
    def pid(self):
        return os.getpid()

    def close(self):
        time.sleep(1000)


class NeedsMore:
    def __init__(self):
        import a_module_that_nobody_has  # noqa: F401


class Fails:
    def __init__(self):
        print("cannot find my data", file=sys.stderr)  # noqa: T201
        raise RuntimeError("no data")


def _raise():
    raise ValueError("no such action")


TROUBLE = {
    "raise": _raise,
    "hang": lambda: time.sleep(1000),
    "spin": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),  # in C, never gives up the interpreter
    "exit": lambda: os._exit(3),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "quit": lambda: sys.exit("I quit"),
}
