"""Let the model write a program, run it, and reward what its tests say."""

from __future__ import annotations

import ast
import json
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows.simple import SimpleWorkflow
from trinity.errors import BadTaskError, ConfigError, unknown_name

from trinity_sandbox.base import Limits
from trinity_sandbox.choice import sandbox_named
from trinity_sandbox.code_runs import code_of, num_passed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows.task import Task

__all__ = ["CodeWorkflow"]

_ARGUMENTS = ("all_or_nothing", "timeout_s", "memory_mb", "sandbox")


class CodeWorkflow(SimpleWorkflow):
    """Asks for a program, runs the last fenced block of the reply, rewards the tests it passes.

    The row's ``test_cases`` are lines of ``assert``, or objects with ``stdin`` and ``stdout``; the
    list may be a text of JSON. A test of several lines is one text of the list. Each test runs in a
    sandbox of its own, with the standard library alone: it reads no file of yours, reaches no
    network, and leaves nothing behind.

    ``workflow_args``:
        all_or_nothing: reward 1 where all tests pass, else 0.
        timeout_s: of the processor, for each test; 5.
        memory_mb: of each test; 512.
        sandbox: ``auto`` (the first of the next three that works), ``bwrap``, ``container`` (or
        ``container:IMAGE``), ``landlock``, ``limits`` (no isolation), or a plugin's sandbox.
    """

    needs_reward_fn: ClassVar[bool] = False
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"question": "Write f.", "test_cases": ["assert f() == 1"]},
        "format_args": {"prompt_key": "question"},
    }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown, or no number above 0, or there is no such sandbox here.
        """
        for name in arguments:
            if name not in _ARGUMENTS:
                raise ConfigError(unknown_name("argument of code_workflow", str(name), _ARGUMENTS))
        _limits(arguments)
        sandbox_named(arguments.get("sandbox", "auto"))

    def reset(self, task: Task) -> None:
        """Take the prompt and the tests of another task."""
        self.task = task
        self.format_args = task.format_args
        self.raw_task = task.raw_task
        self.task_desc = task.task_desc
        self.reply_prefix = task.format_args.reply_prefix
        self.system_prompt = self._system_prompt_of(task)
        self.cases = _cases(task)
        self.limits = _limits(task.workflow_args)
        self.sandbox = sandbox_named(task.workflow_args.get("sandbox", "auto"))

    def score(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with the part of the tests that each passes.

        Raises:
            EnvError: a test could not be run.
        """
        for place, response in enumerate(responses):
            response.eid = replace(response.eid, run=self.run_id_base + place)
            code = code_of((self.reply_prefix or "") + (response.response_text or ""))
            passed, late = num_passed(code, self.cases, sandbox=self.sandbox, limits=self.limits)
            share = passed / len(self.cases)
            is_all = self.task.workflow_args.get("all_or_nothing", False)
            response.reward = float(share == 1.0) if is_all else share
            response.metrics |= {"passed_tests": share, "test_timeouts": float(late)}
        return responses


def _cases(task: Task) -> list[Any]:
    given = task.raw_task.get("test_cases")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = [line for line in given.splitlines() if line.strip()]
    if not isinstance(given, list) or not given or not all(map(_is_case, given)):
        raise BadTaskError(
            f"{task.origin}: test_cases is {given!r:.80}. Give a list of assert lines, or of "
            f"objects with stdin and stdout."
        )
    return [_statements(case, task) if isinstance(case, str) else case for case in given]


def _statements(case: str, task: Task) -> str:
    """Return an assert as a program has it, without what indents all of it.

    Raises:
        BadTaskError: it is none, so that all programs would pass, or none.
    """
    text = textwrap.dedent(case).strip()
    try:
        body = ast.parse(text, filename=str(task.origin)).body  # which its warnings name
        problem = "" if body else "no statement"
    except (SyntaxError, ValueError) as error:
        problem = getattr(error, "msg", str(error))
    if problem:
        raise BadTaskError(
            f"{task.origin}: the test {case!r:.80} is no Python: {problem}. Give a list in which "
            f"each test is a text of its own, of one line or several."
        )
    return text


def _is_case(case: Any) -> bool:  # Any: of a row
    return isinstance(case, str) or (isinstance(case, dict) and case.get("stdout") is not None)


def _limits(arguments: Mapping[str, Any]) -> Limits:
    timeout_s, memory_mb = arguments.get("timeout_s", 5.0), arguments.get("memory_mb", 512)
    for name, value in (("timeout_s", timeout_s), ("memory_mb", memory_mb)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise ConfigError(f"workflow_args.{name} is {value!r}. Give a number above 0.")
    return Limits(
        cpu_s=float(timeout_s),
        wall_s=2 * timeout_s + 5.0,  # it may sleep, or wait for a processor
        memory_bytes=int(memory_mb * 2**20),
        file_bytes=1 << 20,
        disk_bytes=64 << 20,
    )
