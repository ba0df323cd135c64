"""A parser of replies is named in the configuration, and is there before a run starts."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.problem import listed


def found(config, machine) -> list[str]:
    return listed(p for p in check(config, machine) if p.severity != "notice")


@pytest.mark.parametrize(
    ("key", "name", "nearest"),
    [("tool_call_parser", "hermess", "hermes"), ("reasoning_parser", "deepseek-r1", "deepseek_r1")],
)
def test_a_parser_that_is_not_there_is_an_error_with_file_and_line(
    key, name, nearest, a_run, cpu, builtin_only
) -> None:
    path = a_run(f"explorer: {{rollout_model: {{{key}: {name}}}}}")

    (problem,) = found(resolve(load_config(path), cpu), cpu)
    assert f"no reply_parser named '{name}'" in problem
    assert f"Did you mean '{nearest}'?" in problem
    assert f"{path.name}:" in problem


def test_the_parsers_of_published_files_are_there(a_run, cpu, builtin_only) -> None:
    both = "{tool_call_parser: hermes, reasoning_parser: deepseek_r1}"
    path = a_run(f"explorer: {{rollout_model: {both}}}")

    assert found(resolve(load_config(path), cpu), cpu) == []
