"""Run tasks of one taskset for Trinity: a script that runs where verifiers is installed.

::

    stdin:  {"id", "do": "load", "taskset", "config", "harness", "agent"}      once, the first line
            {"id", "do": "run", "task", "base_url", "key", "model"}            many at once
            {"id", "do": "cancel", "run"}
    stdout: {"id", "error"} or {"id", "result"}                                a line for each

It imports nothing of Trinity, which is not there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils import loaders

DIRECT = "trinity_direct"


class Runner:
    """The taskset, and the runs that are under way."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.name = asked["taskset"]
        ident = _importable(self.name)
        config = loaders.taskset_config_type(ident).model_validate(
            {**(asked["config"] or {}), "id": ident}
        )
        self._tasks: list[Any] = []
        self._rest = iter(loaders.taskset_class(ident)(config))
        self._agent = {**(asked["agent"] or {}), "harness": _harness(asked["harness"], ident)}
        vf.AgentConfig.model_validate({"runtime": {"type": "subprocess"}, **self._agent})
        self._runs: dict[int, asyncio.Task[Any]] = {}

    def task(self, number: int) -> Any:
        """Return a task of the taskset, which is read once, and no further than needed."""
        while len(self._tasks) <= number:
            try:
                self._tasks.append(next(self._rest))
            except StopIteration:
                raise LookupError(
                    f"there is no task {number}: the taskset has {len(self._tasks)}"
                ) from None
        return self._tasks[number]

    def rows(self, limit: int | None) -> list[dict[str, Any]]:
        """Return what rows of a dataset say about the tasks."""
        rows = []
        while limit is None or len(rows) < limit:
            try:
                data = self.task(len(rows)).data
            except LookupError:
                break
            about = {"name": data.name, "prompt": data.prompt}
            told = {key: value for key, value in about.items() if isinstance(value, str)}
            rows.append({"idx": len(rows), **told})
        return rows

    async def run(self, number: int, asked: dict[str, Any]) -> dict[str, Any]:
        """Return how a run of a task ended."""
        task = self.task(asked["task"])
        variable = f"TRINITY_API_KEY_{number}"  # programs do not inherit names with API_KEY
        os.environ[variable] = asked["key"]
        try:
            client = {"type": "eval", "base_url": asked["base_url"], "api_key_var": variable}
            config = vf.AgentConfig.model_validate(
                {
                    "runtime": {"type": "subprocess"},
                    **self._agent,
                    "model": asked["model"],
                    "client": client,
                }
            )
            self._runs[number] = asyncio.ensure_future(vf.make_agent(config).run(task))
            return _told(await self._runs[number])
        finally:
            self._runs.pop(number, None)
            del os.environ[variable]

    def cancel(self, number: int) -> None:
        """End a run, if it is under way."""
        if number in self._runs:
            self._runs[number].cancel()


class Service:
    """Answers the lines that come in."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what a taskset prints is no answer
        self._runner: Runner | None = None
        self._pending: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer until there is nothing more to read."""
        reader = asyncio.StreamReader(limit=1 << 26)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            asked = json.loads(line)
            task = asyncio.ensure_future(self._answer(asked))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)
            if asked["do"] == "load":
                await task

    async def _answer(self, asked: dict[str, Any]) -> None:
        try:
            said = json.dumps({"id": asked["id"], "result": await self._result(asked)})
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 -- a taskset's
            what = " ".join(f"{type(error).__name__}: {error}".split())
            said = json.dumps({"id": asked["id"], "error": what})
        self._answers.write(said + "\n")
        self._answers.flush()

    async def _result(self, asked: dict[str, Any]) -> Any:
        if asked["do"] == "load":
            self._runner = Runner(asked)
            return None
        assert self._runner is not None, "load comes first"
        if asked["do"] == "run":
            return await self._runner.run(asked["id"], asked)
        if asked["do"] == "rows":
            return self._runner.rows(asked["limit"])
        return self._runner.cancel(asked["run"])


def _importable(taskset: str) -> str:
    """Return the id of a taskset; a file's folder, else the working one, is looked in."""
    if taskset.endswith(".py"):
        file = Path(taskset).resolve()
        sys.path.insert(0, str(file.parent))
        return file.stem
    sys.path.append(os.getcwd())
    return taskset


def _harness(given: Any, taskset: str) -> dict[str, Any]:
    """Return the harness: given, the taskset's own, or one that asks once in this process."""
    if isinstance(given, dict):
        return given
    own = loaders.default_harness_id(taskset)
    ident = given or (own if own == taskset else DIRECT)
    return {"id": DIRECT if ident == "direct" else ident}


def _told(trace: Any) -> dict[str, Any]:
    """Return what Trinity wants to know of a trace."""
    rewards = {name: one.value for name, one in trace.rewards.items() if one is not None}
    return {
        "is_ok": trace.ok,
        "reward": trace.reward if rewards else None,
        "rewards": rewards,
        "metrics": {name: value for name, value in trace.metrics.items() if value is not None},
        "errors": [{"type": error.type, "message": error.message} for error in trace.errors],
        "stop": trace.stop_condition,
        "is_truncated": trace.is_truncated,
        "num_turns": trace.num_turns,
    }


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))  # of the harness
    asyncio.run(Service().serve())
