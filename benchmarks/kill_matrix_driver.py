"""``trinity run`` that kills one of its processes at the moments of a plan (``kill_matrix.py``).

``python kill_matrix_driver.py FOLDER run --config ...`` reads ``plan.json`` in the folder and notes
in ``events.jsonl`` what was killed when, and when each phase was done.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kill_matrix_agents as agents

METHODS = {"train": "_train", "sync": "_sync", "save": "_save"}
ROLLOUT_METHODS = {"explore": "_explored", "evaluation": "_evaluated"}  # also in a thread


def batch_in_flight(rollouts: Any, seen: int) -> int | None:
    """Return the batch that is waited for where groups begin one by one; else None."""
    buffer = rollouts._buffer
    return buffer.num_consumed // buffer.batch + 1 if buffer.policy.in_groups else None


SHORT_S = 0.005  # the phase would be over before the thread runs


class Killer:
    """Knows the phase that the run is in, and kills as planned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = folder / "events.jsonl"
        noted = self._events.read_text().splitlines() if self._events.exists() else []
        done = [json.loads(line)["number"] for line in noted if '"killed"' in line]
        plan = json.loads((folder / "plan.json").read_text())
        self._plan = {n: kill for n, kill in enumerate(plan["kills"]) if n not in done}
        self._seconds = plan["seconds"]  # that each phase takes in the unbroken run
        self._phases: list[str] = []
        self.pids = {"driver": os.getpid()}

    def watch(self, phase: str, method: Any, *, step_of: Any) -> Any:
        """Return the method, watched; ``step_of`` tells the explore step (Any: as it is called)."""

        @functools.wraps(method)
        def watched(owner: Any, *args: Any, **kwargs: Any) -> Any:
            step = step_of(owner, *args)
            if step is None:
                return method(owner, *args, **kwargs)
            self._phases.append(phase)
            self._arm(phase, step)
            began = time.time()
            try:
                result = method(owner, *args, **kwargs)
            finally:
                self._phases.remove(phase)  # another thread may be in one too
            self._note(done=phase, seconds=time.time() - began)
            return result

        return watched

    def _arm(self, phase: str, step: int) -> None:
        for number, kill in list(self._plan.items()):
            if kill["phase"] == phase and step >= kill["step"]:
                del self._plan[number]
                delay_s = kill["share"] * self._seconds[phase]
                thread = threading.Thread(
                    target=self._kill, args=(number, kill, delay_s), daemon=True
                )
                thread.start()
                if delay_s < SHORT_S:
                    thread.join()
                return

    def _kill(self, number: int, kill: dict[str, Any], delay_s: float) -> None:
        process, pid = kill["process"], 0
        if process != "agent":
            pid = self._pid_of(process)
        streaming = None
        if process not in {"agent", "runner-0"} or not agents.are_asked(self._folder.parent):
            time.sleep(delay_s)
        else:  # while one is answered
            streaming = agents.wait_for_stream(self._folder.parent)
            pid = streaming if process == "agent" and streaming else pid
        if not pid:
            return  # no run was an agent's
        if not _is_there(pid):  # it was killed before, and nobody has taken its place yet
            self._plan[number] = kill
            return
        phase = self._phases[-1] if self._phases else kill["phase"]
        self._note(number=number, killed=process, phase=phase, pid=pid,
                   is_over_ray=kill["is_over_ray"], is_streaming=streaming is not None)  # fmt: skip
        os.kill(pid, signal.SIGKILL)

    def _pid_of(self, process: str) -> int:
        """Return the process that is there, maybe a later one than at the start."""
        if process.startswith(("engine", "runner")):
            return int(self.rooms[process].facts().pid)
        return self.pids[process]

    def _note(self, **event: Any) -> None:
        with self._events.open("a") as file:
            file.write(json.dumps({"t": time.time(), **event}) + "\n")

    rooms: dict[str, Any] = {}  # noqa: RUF012 -- one killer a process


def _is_there(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Run ``trinity`` with the pipeline watched."""
    killer = Killer(Path(sys.argv.pop(1)))
    from trinity.cli.main import main as trinity
    from trinity.runtime.loop import Loop
    from trinity.runtime.rollouts import Rollouts

    for phase, name in METHODS.items():
        watched = killer.watch(
            phase, getattr(Loop, name), step_of=lambda loop, *_: loop.progress.explore_steps
        )
        setattr(Loop, name, watched)
    for phase, name in ROLLOUT_METHODS.items():
        watched = killer.watch(phase, getattr(Rollouts, name), step_of=lambda rollouts, step: step)
        setattr(Rollouts, name, watched)
    Rollouts.wait = killer.watch("explore", Rollouts.wait, step_of=batch_in_flight)
    if "--local" not in sys.argv:
        _learn_process_ids(killer)
    trinity()


def _learn_process_ids(killer: Killer) -> None:
    from trinity.runtime.ray import worker_group

    facts = worker_group._facts

    def noting(handles: Any, **how: Any) -> Any:
        found = facts(handles, **how)
        killer.pids |= {room.name: room.pid for room in found}
        killer.rooms |= {handle.name: handle for handle in handles}
        return found

    setattr(worker_group, "_facts", noting)  # noqa: B010 -- a module's own


if __name__ == "__main__":
    main()
