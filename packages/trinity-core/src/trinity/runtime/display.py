"""Show a person how a run goes: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trinity.common.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.runtime.record.progress import Progress

NUM_PLAIN_LINES = 40  # about so many step lines a stage where nothing can be redrawn
_BARS = "▁▂▃▄▅▆▇█"


class Display:
    """The picture of one stage.

    ``began -> (explored | trained | evaluated | say)* -> ended``. With a terminal the picture is
    redrawn in place, four times a second; otherwise each thing is a line, steps thinned out to
    some forty lines.
    Steps are those of the explorer; without one, those of the trainer.
    """

    def __init__(self, console: Console | None = None, *, title: str = "") -> None:
        self.console = console or Console(highlight=False)
        self._title = title
        self._live: Live | None = None
        self._stage = self._memory = ""
        self._has_explorer = self._has_trainer = True
        self._start(total_steps=0, done=0)

    def began(
        self,
        *,
        total_steps: int,
        progress: Progress,
        stage: str = "",
        has_explorer: bool = True,
        has_trainer: bool = True,
    ) -> None:
        """Start the picture of a stage of ``total_steps`` steps; 0: it has no end."""
        self._stage, self._has_explorer, self._has_trainer = stage, has_explorer, has_trainer
        done = progress.explore_steps if has_explorer else progress.train_steps
        self._start(total_steps=total_steps, done=done)
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._picture, console=self.console, refresh_per_second=4
            )
            self._live.start()
        else:
            steps = f"{total_steps} steps" if total_steps else "steps until it is stopped"
            self.say(f"{self._head()}: {steps}")

    def say(self, text: str) -> None:
        self.console.print(Text(masked(text)), soft_wrap=True)

    def explored(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in the metrics of an explore step."""
        reward = metrics.get("rollout/reward/mean")
        if reward is not None:
            self._rewards.append(reward)
            self._values["reward"] = f"{reward:.3f}"
        tokens, seconds = metrics.get("rollout/num_tokens"), metrics.get("time/rollout_s")
        if tokens and seconds:
            self._values["tokens/s"] = f"{tokens / seconds:,.0f}"
        for name, value in _of_calls(metrics):
            self._values[name] = value
        self._values.pop("failed runs", None)  # those of the last step
        failed = metrics.get("rollout/failed_runs", 0)
        if failed:
            self._values["failed runs"] = f"{failed:.0f}"
        self._count(step)
        self._show(is_line=not self._has_trainer)

    def trained(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in the metrics of an optimizer step."""
        if "actor/loss" in metrics:
            self._values["loss"] = f"{metrics['actor/loss']:.4f}"
        if not self._has_explorer:
            self._count(step)
        self._show(is_line=True)

    def evaluated(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Take in an evaluation; ``step`` is the explore step it follows, if that is known."""
        parts = [
            f"{name.removeprefix('eval/')} {value:.3f}" for name, value in _rewards_of(metrics)
        ]
        after = "" if step is None else f"after step {step}: "
        self._last_evaluation = after + ", ".join(parts)
        self.say(f"evaluation {self._last_evaluation}")

    def show_memory(self, used: str) -> None:
        """Show how much memory is used, where that is near the limit; "": it is not."""
        self._memory = used

    def ended(self, lines: Sequence[str] = ()) -> None:
        """Take the picture down and print the last lines; also after an error."""
        if self._live is not None:
            self._live.stop()  # draws it once more
            self._live = None
        for line in lines:
            self.say(line)

    def _start(self, *, total_steps: int, done: int) -> None:
        self._total_steps = total_steps
        self._done = self._last_line = done
        self._began_at = time.perf_counter()
        self._counted_from = 0, 0.0  # the first step of this start, and when it ended
        self._values: dict[str, str] = {}
        self._rewards: deque[float] = deque(maxlen=60)
        self._last_evaluation = ""

    def _count(self, step: int) -> None:
        self._done = step
        if not self._counted_from[1]:
            self._counted_from = step, time.perf_counter()

    def _head(self) -> str:
        return f"{self._title}, stage {self._stage}" if self._stage else self._title

    def _show(self, *, is_line: bool) -> None:
        if self._live is None and is_line and self._is_a_line_due():
            self._last_line = self._done
            self.say(f"step {self._counted()}  {self._shown_values()}  {self._clock()}")

    def _is_a_line_due(self) -> bool:
        done, last = self._done, self._last_line
        every = -(-self._total_steps // NUM_PLAIN_LINES) or 1
        is_an_end = done in {1, self._total_steps} and done != last
        return is_an_end or done // every > last // every

    def _picture(self) -> Group:
        head = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(total=self._total_steps or None, completed=self._done, width=40)
        head.add_row(Text(self._head(), style="bold"), bar, self._counted(), self._clock())
        rows = [head, Text(self._shown_values())]
        if self._rewards:
            rows.append(Text(f"reward {_sparkline(list(self._rewards))}", style="green"))
        if self._last_evaluation:
            rows.append(Text(f"evaluation {self._last_evaluation}"))
        return Group(*rows)

    def _shown_values(self) -> str:
        values = list(self._values.items())  # a copy: the thread that draws reads while steps end
        values += [("memory", self._memory)] if self._memory else []
        return "  ".join(f"{name} {value}" for name, value in values)

    def _counted(self) -> str:
        return f"{self._done}/{self._total_steps}" if self._total_steps else str(self._done)

    def _clock(self) -> str:
        now, (first, since) = time.perf_counter(), self._counted_from
        elapsed, done = now - self._began_at, self._done - first
        if done <= 0 or not since or not self._total_steps:
            return f"{elapsed:.0f} s"
        left = (now - since) / done * (self._total_steps - self._done)
        return f"{elapsed:.0f} s, {left:.0f} s left"


def _of_calls(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return how agents asked their model: calls a run, and how many chats went on by ids."""
    calls = metrics.get("rollout/api/calls/mean")
    continued = metrics.get("rollout/api/continued_ratio/mean")
    found = [] if calls is None else [("calls a run", f"{calls:.1f}")]
    return found if continued is None else [*found, ("chains continued", f"{continued:.0%}")]


def _rewards_of(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    chosen = [(name, value) for name, value in metrics.items() if "/mean@" in name]
    rewards = [(name, value) for name, value in chosen if "/reward/" in name]
    return rewards or chosen


def _sparkline(values: list[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[int((value - low) / span * (len(_BARS) - 1))] for value in values)
