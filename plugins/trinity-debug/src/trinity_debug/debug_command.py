"""``trinity debug``: one task, one workflow, every prompt and reply."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.cli.output import indented, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.buffer.task_source import Taskset
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import Completion, GenerationRequest
    from trinity.explorer.requests import RolloutRequest

    from trinity_debug.difference import Difference
    from trinity_debug.recorded import RecordedRollout
    from trinity_debug.session import Debugged

_WIDTH = 78
_AS = {
    "prompt": "From there the prompt was",
    "action": "There the action was",
    "tokens": "From there it was",
}


def debug(  # noqa: PLR0913, PLR0917 -- the options of a command
    file: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="The YAML file of the run.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The YAML file, as an option.")
    ] = None,
    task: Annotated[int, typer.Option(help="Row of the taskset, from 0.")] = 0,
    taskset: Annotated[
        str, typer.Option(help="Name of the taskset; default: the first training taskset.")
    ] = "",
    say: Annotated[
        list[str] | None,
        typer.Option(help="Reply with this text instead of a model. Repeat for further replies."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN/BATCH/TASK/RUN",
            help="Replay the replies of a trained rollout; stop at the first different prompt.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a value, as in --set model.model_path=m. Repeatable."),
    ] = None,
    plugin_dir: Annotated[
        list[Path] | None,
        typer.Option("--plugin-dir", help="Load the plugins of a folder. Repeatable."),
    ] = None,
    module: Annotated[
        str,
        typer.Option("--module", "-m", help="Only `workflow`, for compatibility with Trinity-RFT."),
    ] = ("workflow"),
) -> None:
    """Run one task once in this process; train and write nothing. breakpoint() works.

    The exit code is 1 if the workflow fails or a replay differs.
    """
    if module != "workflow":
        raise typer.BadParameter(
            f"--module {module}: trinity debug starts the engine itself, and trinity view shows "
            f"the samples of a run. Leave --module out."
        )
    named = file or config
    if named is None or (file and config):
        raise typer.BadParameter("name one YAML file: trinity debug CONFIG")
    from trinity.runtime.preflight import set_threads

    set_threads()
    from trinity.common.config.explanation import load_or_explain
    from trinity.extend import get_manager, set_manager

    set_manager(get_manager().narrowed(plugin_dirs=plugin_dir or ()))
    given = load_or_explain(named, overrides=settings or ())
    ended = _debugged(given, row=task, taskset=taskset, say=tuple(say or ()), replay=replay)
    is_well = _say_how_it_ended(ended)
    raise typer.Exit(0 if is_well else 1)


def _debugged(given: Config, **wanted: Any) -> Debugged:  # Any: of DebugRequest
    """Run the task; the garbage collector rests until it begins."""
    from trinity.runtime.gc_paused import gc_paused

    with ExitStack() as start:
        start.enter_context(gc_paused())
        from trinity_debug.session import DebugRequest
        from trinity_debug.session import debug as run_debugged

        def begins(request: RolloutRequest, taskset: Taskset) -> None:
            start.close()
            _say_what_begins(request, taskset)

        return run_debugged(given, DebugRequest(**wanted), observer=_Printer, begins=begins)


class _Printer:
    """Prints each call; the calls of several threads in whole pieces."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._chat_format = chat_format
        self._lock = threading.Lock()

    def asked(self, number: int, request: GenerationRequest) -> None:
        """Print a prompt."""
        ids = request.prompt_token_ids
        text = self._chat_format.decode(ids, skip_special_tokens=False)
        with self._lock:
            typer.echo(_rule(f"prompt {number}: {len(ids)} tokens"))
            typer.echo(plain(text))

    def answered(self, number: int, outcome: list[Completion] | BaseException) -> None:
        """Print the replies, or why there is none."""
        with self._lock:
            if isinstance(outcome, BaseException):
                typer.echo(_rule(f"no reply {number}"))
                typer.echo(plain(str(outcome)))
                return
            for reply in outcome:
                said = f"reply {number}: {len(reply.token_ids)} tokens, {reply.finish_reason}"
                typer.echo(_rule(f"{said}, log-probability {math.fsum(reply.logprobs):.3g}"))
                text = self._chat_format.decode(reply.token_ids, skip_special_tokens=False)
                typer.echo(plain(text))


def _say_what_begins(request: RolloutRequest, taskset: Taskset) -> None:
    row = request.task.index["index"]
    workflow = request.workflow
    typer.echo(f"row {row} of taskset {taskset.name}, {workflow.name} of {workflow.plugin}")


def _say_how_it_ended(ended: Debugged) -> bool:
    """Print the result; return whether all is well."""
    typer.echo(_rule("result"))
    outcome = ended.outcome
    if isinstance(outcome, list):
        for experience in outcome:
            typer.echo(_line(experience))
    elif not ended.has_departed:
        typer.echo(plain(ended.traceback).rstrip())
        typer.echo(plain(f"failed: {outcome}"))
    if ended.recorded is None:
        return isinstance(outcome, list)
    typer.echo(plain(_about_the_environment(ended.recorded)))
    for line in _about_the_order(ended.recorded):
        typer.echo(line)
    if ended.missing:
        typer.echo("an environment cannot be built here, but this replay does not need it:")
        typer.echo(indented(plain(ended.missing)))
    if ended.difference is not None:
        _say_the_difference(ended.difference)
        return False
    num_calls = len(ended.recorded.exchanges)
    rewards = ", ".join(map(_number, ended.recorded.rewards.values()))
    told = "rewards are not compared: operators change them" if ended.is_reshaped else rewards
    typer.echo(f"the replay is equal: {num_calls} calls, reward {told}")
    return True


def _about_the_environment(recorded: RecordedRollout) -> str:
    """Return who answered in the environment's place."""
    answers = recorded.answers
    if answers.tracks:
        return f"using {answers.num_calls} recorded answers instead of the environment"
    why = answers.problem or (
        "the workflow has no environment, does not use recorded(), or its experience was not "
        "trained"
    )
    return f"no answers of an environment were recorded ({why}); using the real environment, if any"


def _about_the_order(recorded: RecordedRollout) -> Iterator[str]:
    if recorded.num_unordered:
        yield (
            f"{recorded.num_unordered} of {len(recorded.exchanges)} calls have no recorded "
            f"order (no reply_names in the info of their experience); they are replayed in the "
            f"order of the file"
        )
    if recorded.num_ambiguous:
        yield (
            f"{recorded.num_ambiguous} calls have equal prompts and no recorded order, so their "
            f"replies may be exchanged"
        )


def _say_the_difference(difference: Difference) -> None:
    if not (difference.was or difference.now):
        typer.echo(str(difference))
        return
    typer.echo(f"the replay differs at {difference.what}. {_AS[difference.thing]} recorded as:")
    typer.echo(indented(plain(difference.was)) if difference.was else "    (no such call)")
    typer.echo("and is now:")
    typer.echo(indented(plain(difference.now)) if difference.now else "    (no such call)")


def _line(experience: Experience) -> str:
    mask = experience.action_mask
    trained = len(experience.tokens) - experience.prompt_length if mask is None else int(mask.sum())
    reward = _number(None if experience.reward is None else float(experience.reward))
    line = f"experience {experience.eid.step}: {len(experience.tokens)} tokens, {trained} of the"
    line += f" model, reward {reward}"
    metrics = {name: round(float(value), 4) for name, value in experience.metrics.items()}
    return f"{line}, metrics {metrics}" if metrics else line


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _rule(text: str) -> str:
    return f"--- {text} ".ljust(_WIDTH, "-")
