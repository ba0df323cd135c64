"""Engines that fail, for tests/test_failures.py: run in a process of their own."""

from __future__ import annotations


class _Engine:
    fails_in = ""

    def __init__(self, *, fast):
        self._fail("start")

    def load(self, game):
        self._fail("load")

    def translation(self):
        return None

    def reset(self):
        self._fail("reset")
        return "A room.", {"won": False, "admissible_commands": ["look"]}

    def step(self, command):
        self._fail("step")
        return "A room.", 0.0, False, {"won": False, "admissible_commands": ["look"]}

    def close(self):
        self._fail("close")

    def _fail(self, where):
        if where == self.fails_in:
            raise RuntimeError(f"the planner gave up in {where}")


class RaisesInReset(_Engine):
    fails_in = "reset"


class RaisesInStep(_Engine):
    fails_in = "step"


class RaisesInClose(_Engine):
    fails_in = "close"


class CannotBeHastened(_Engine):
    def reset(self):
        text, info = super().reset()
        return text, {**info, "obstacle": "pddl2sas takes ['problem']"}


class LacksAPackage(_Engine):
    def __init__(self, *, fast):
        raise ModuleNotFoundError("No module named 'textworld'")
