"""``trinity harbor``: check task directories, try their solutions, write the rows of a taskset."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.errors import BadTaskError, ConfigError, EnvError

from trinity_envs_harbor.environment import opened
from trinity_envs_harbor.layout import images_for, task_sandbox
from trinity_envs_harbor.prepared import forget_prepared, prepared, problems_of
from trinity_envs_harbor.rewards import chosen, rolled_up
from trinity_envs_harbor.step_loop import step_rewards
from trinity_envs_harbor.task import digest_of, task_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity_sandbox.base import Sandbox

    from trinity_envs_harbor.container_workspace import PreparedImage
    from trinity_envs_harbor.containers import ContainerClient
    from trinity_envs_harbor.environment import TaskEnvironment
    from trinity_envs_harbor.prepared import Prepared
    from trinity_envs_harbor.problems import Problem
    from trinity_envs_harbor.task import TaskStep

__all__ = ["app", "check", "oracle", "rows"]

app = typer.Typer(no_args_is_help=True, help="Check and try task directories of Harbor.")

Folder = Annotated[Path, typer.Argument(help="A task, or a folder of tasks.")]
Images = Annotated[
    list[str] | None,
    typer.Option(
        "--image", help="What a base image stands for: python:3.11-slim=host. Repeatable."
    ),
]
Key = Annotated[str, typer.Option("--reward-key", help="Which number of a verifier is the reward.")]
SandboxName = Annotated[str, typer.Option("--sandbox", help="auto, bwrap or container.")]


@app.command()
def check(folder: Folder, image: Images = None, sandbox: SandboxName = "auto") -> None:
    """Say of each task whether it runs here, and name each problem with file and line.

    Runs nothing. Ends with code 1 if a task has a problem.
    """
    num_bad, folders, in_container = 0, _folders(folder), sandbox == "container"
    where = "in a container" if in_container else "in bwrap"
    for one in folders:
        images = images_for(one, _images(image))
        _, problems = problems_of(one, images, tasks=folder, in_container=in_container)
        serious = [problem for problem in problems if not problem.is_note]
        num_bad += bool(serious)
        typer.echo(f"{one}: {'cannot run' if serious else f'runs {where}'}")
        for problem in problems:
            typer.echo(f"  {problem}")
    typer.echo(f"{len(folders)} tasks, {num_bad} of them cannot run")
    _warn_without(sandbox)
    if num_bad:
        raise typer.Exit(1)


@app.command()
def oracle(
    folder: Folder,
    image: Images = None,
    reward_key: Key = "",
    at_least: Annotated[float, typer.Option(help="The reward that a solution must earn.")] = 1.0,
    sandbox: SandboxName = "auto",
) -> None:
    """Run each task's solution, which must earn the reward, and nothing, which must earn less.

    Ends with code 1 if one does not.
    """
    used = _sandbox(sandbox)
    num_bad, folders = 0, _folders(folder)
    typer.echo(f"{'solution':>9} {'nothing':>9} {'seconds':>8}  task")
    try:
        for one in folders:
            began = time.monotonic()
            tried = _tried(one, used, _images(image), tasks=folder, key=reward_key)
            problems = list(tried.problems(at_least))
            num_bad += bool(problems)
            seconds = time.monotonic() - began
            typer.echo(f"{tried.solution.shown:>9} {tried.nothing.shown:>9} {seconds:>8.2f}  {one}")
            for problem in problems:
                typer.echo(f"  {problem}")
    finally:
        forget_prepared()
    typer.echo(f"{len(folders)} tasks, {num_bad} of them with a problem")
    if num_bad:
        raise typer.Exit(1)


@app.command()
def rows(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="Of JSON lines, written anew.")],
    image: Images = None,
    sandbox: SandboxName = "auto",
) -> None:
    """Write a row for each task: its folder, that of all tasks, name, instruction and digest.

    Ends with code 1, and writes nothing, if a task cannot run here.
    """
    lines = []
    bad: list[Problem] = []
    for one in _folders(folder):
        images = images_for(one, _images(image))
        in_container = sandbox == "container"
        task, problems = problems_of(one, images, tasks=folder, in_container=in_container)
        bad += [problem for problem in problems if not problem.is_note]
        if task is not None:
            row = {
                "task_dir": str(one),
                "tasks_dir": str(folder),
                "name": task.name,
                "instruction": task.steps[0].instruction.strip() if task.steps else "",
                "digest": digest_of(one, folder),
            }
            lines.append(json.dumps(row) + "\n")
    if bad:
        typer.echo("\n".join(map(str, bad)))
        raise typer.Exit(1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), encoding="utf-8")
    typer.echo(f"{file}: {len(lines)} rows")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    """Of one run: a reward, or why there is none."""

    reward: float | None = None
    problem: str = ""
    printed: str = ""

    @property
    def shown(self) -> str:
        return "none" if self.reward is None else f"{self.reward:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tried:
    solution: _Outcome
    nothing: _Outcome

    def problems(self, at_least: float) -> Iterator[str]:
        for who, outcome in (("the solution", self.solution), ("doing nothing", self.nothing)):
            if outcome.problem:
                yield f"{who}: {outcome.problem}"
        done, undone = self.solution.reward, self.nothing.reward
        if done is not None and done < at_least:
            said = self.solution.printed or "nothing"
            yield f"the solution earns {done:g}, less than {at_least:g}. It printed: {said}"
        if done is not None and undone is not None and undone >= done:
            yield f"doing nothing earns {undone:g}, as much as the solution."


def _tried(
    folder: Path,
    sandbox: Sandbox | ContainerClient,
    images: Mapping[str, str],
    *,
    tasks: Path,
    key: str,
) -> _Tried:
    try:
        ready = prepared(folder, sandbox=sandbox, images=images_for(folder, images), tasks=tasks)
    except (BadTaskError, EnvError) as error:
        return _Tried(solution=_Outcome(problem=str(error)), nothing=_Outcome())
    for step in ready.task.steps:
        if step.solution is None or not (step.solution / "solve.sh").is_file():
            told = f"{(step.solution or folder / 'solution') / 'solve.sh'} is missing."
            return _Tried(solution=_Outcome(problem=told), nothing=_Outcome())
    return _Tried(
        solution=_run(ready, sandbox, _solved, key=key),
        nothing=_run(ready, sandbox, lambda environment, step: "", key=key),
    )


def _run(
    ready: Prepared | PreparedImage,
    sandbox: Sandbox | ContainerClient,
    act: Callable[[TaskEnvironment, TaskStep], str],
    *,
    key: str,
) -> _Outcome:
    printed: list[str] = []
    try:
        with opened(ready, sandbox, reward_key=key) as environment:
            found = step_rewards(environment, lambda step: printed.append(act(environment, step)))
        rewards = rolled_up(found, is_final=ready.task.is_final)
        return _Outcome(reward=chosen(rewards, key), printed="\n".join(filter(None, printed)))
    except EnvError as error:
        return _Outcome(problem=str(error))


def _solved(environment: TaskEnvironment, step: TaskStep) -> str:
    ended = environment.solve(step)
    return ended.stdout.decode(errors="replace").strip()[-500:]


def _folders(folder: Path) -> list[Path]:
    found = task_folders(folder)
    if not found:
        typer.echo(f"{folder} holds no task: no task.toml is below it.")
        raise typer.Exit(1)
    return found


def _images(given: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or []:
        name, _, value = text.rpartition("=")
        if not name:
            typer.echo(f"--image {text}: write NAME=host.")
            raise typer.Exit(2)
        pairs[name] = value
    return pairs


def _sandbox(name: str) -> Sandbox | ContainerClient:
    try:
        return task_sandbox(name)
    except ConfigError as error:
        typer.echo(str(error))
        raise typer.Exit(1) from error


def _warn_without(sandbox: str) -> None:
    try:
        task_sandbox(sandbox)
    except ConfigError as error:
        typer.echo(f"note: on this machine none runs: {error}")
