"""What the functions of a user are called with, and what is said when they fail."""

from __future__ import annotations

import asyncio
import functools

import pytest
from trinity.errors import ConfigError, EnvError, WorkflowError
from trinity_agents_agentscope.functions import user_function

FURTHER = ("auxiliary_models", "logger")


def workflow_func(function):
    arguments = {"workflow_func": function}
    return user_function(arguments, "workflow_func", needed=("task", "model"), further=FURTHER)


def called(function, **further):
    offered = {"task": {"question": "1 + 1 ="}, "model": "the model", **further}
    return asyncio.run(workflow_func(function).called(**offered))


def test_P100_and_P103_a_function_gets_the_plain_row_the_model_and_no_auxiliary_models() -> None:
    async def solve(task, model, auxiliary_models):
        return task, model, auxiliary_models

    assert called(solve, auxiliary_models={}) == ({"question": "1 + 1 ="}, "the model", {})


def test_a_function_gets_only_what_it_names() -> None:
    async def solve(task, model):
        return sorted([*task, model])

    assert called(solve, auxiliary_models={}, logger=None) == ["question", "the model"]


def test_a_partial_function_and_an_object_that_can_be_called_are_functions_too() -> None:
    async def solve(task, model, scale=1):
        return scale

    class Solver:
        async def __call__(self, task, model):
            return model

    assert called(functools.partial(solve, scale=3)) == 3
    assert called(Solver()) == "the model"


def test_an_error_names_the_function_and_the_line() -> None:
    async def solve(task, model):
        raise KeyError("answer")

    with pytest.raises(WorkflowError, match=r"solve raised KeyError at .*test_functions.py:\d+"):
        called(solve)


def test_a_typed_failure_passes_as_it_is() -> None:
    async def solve(task, model):
        raise EnvError("the shop is closed")

    with pytest.raises(EnvError, match="the shop is closed"):
        called(solve)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (None, "workflow_args.workflow_func is None, which is no function"),
        ("solve", "workflow_args.workflow_func is 'solve', which is no function"),
        (lambda task: None, "has no parameter 'model'"),
        (lambda task, model, shop: None, "asks for 'shop', which nobody gives"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_a_run(function, said) -> None:
    with pytest.raises(ConfigError, match=said):
        workflow_func(function)
