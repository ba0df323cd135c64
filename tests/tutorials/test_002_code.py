"""002: a workflow that runs returned code, tests it, and rewards by the results."""

from __future__ import annotations

from typing import Any

import pytest
from trinity.common.workflows import CodeWorkflow
from trinity.errors import BadTaskError, ConfigError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

RIGHT = "Like this:\n```python\ndef double(x):\n    return 2 * x\n```"
ASSERTS = ["assert double(2) == 4", "assert double(0) == 0"]


def scored(reply: str, cases: Any, **arguments: Any) -> Any:
    row = {"question": "Write it.", "test_cases": cases}
    task = a_task(raw_task=row, workflow_args=arguments, format_args={"prompt_key": "question"})
    [experience] = CodeWorkflow(task=task, model=model_over(ScriptedEngine(reply))).run()
    return experience


def test_P071_code_that_passes_its_tests_is_rewarded_by_one() -> None:
    assert scored(RIGHT, ASSERTS).reward == 1.0


def test_P071_code_that_fails_or_is_none_is_rewarded_by_zero() -> None:
    for reply in ("def double(x): return x - 1", "I cannot.", "```\n1 +\n```"):
        assert scored(reply, ASSERTS[:1]).reward == 0.0


def test_P071_an_endless_loop_is_the_tests_timeout_and_counted() -> None:
    experience = scored("while True: pass", ASSERTS[:1], timeout_s=1)

    assert experience.reward == 0.0
    assert experience.metrics == {"passed_tests": 0.0, "test_timeouts": 1.0}


def test_the_reward_is_the_part_of_passed_tests_or_all_or_nothing() -> None:
    half = [ASSERTS[0], "assert double(1) == 3"]

    assert scored(RIGHT, half).reward == 0.5
    assert scored(RIGHT, half, all_or_nothing=True).reward == 0.0


def test_what_is_printed_is_compared_with_what_is_wanted() -> None:
    reply = "```python\nprint(sum(map(int, input().split())))\n```"
    cases = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "1 2", "stdout": "4"}]

    assert scored(reply, cases).reward == 0.5
    no_input = "```python\nimport sys\nprint(len(sys.stdin.read()))\n```"
    assert scored(no_input, [{"stdin": None, "stdout": "0"}]).reward == 1.0  # of a file of columns


def test_a_program_sees_no_environment_and_fills_no_memory_or_disk() -> None:
    for line in (
        "import os; assert not os.environ.get('PATH')",
        "try:\n    x = bytearray(10**10)\nexcept MemoryError:\n    pass\nelse:\n    assert False",
        "try:\n    open('big', 'wb').write(bytes(10**7))\nexcept OSError:\n    pass",
    ):
        assert scored("x = 1", [line]).reward == 1.0


def test_a_row_without_tests_and_a_wrong_argument_are_told() -> None:
    with pytest.raises(BadTaskError, match="test_cases is None"):
        scored(RIGHT, None)
    no_block = (
        r"'def check\(f\):' is no Python: expected an indented block .* on line 1\. Give a li"
    )
    with pytest.raises(BadTaskError, match=no_block):
        scored(RIGHT, "def check(f):\n    assert f(2) == 4")
    with pytest.raises(BadTaskError, match=r"'# none' is no Python: no statement"):
        scored(RIGHT, ["# none"])
    with pytest.raises(ConfigError, match="Did you mean 'timeout_s'"):
        CodeWorkflow.check_arguments({"timeout": 3})
