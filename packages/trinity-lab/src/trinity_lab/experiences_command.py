"""``trinity experiences``: what a run trained, for people and for other programs."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from trinity.cli.output import indented, plain
from trinity.errors import ConfigError

from trinity_lab.output_file import is_standard_output, whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.runtime.record.run_text import RunText
    from trinity.runtime.record.sample_files import Place, Sample


def experiences(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run directory, or the directory of a stage.")
    ],
    step: Annotated[int | None, typer.Option(help="Only the samples of this train step.")] = None,
    task: Annotated[
        str, typer.Option(help="Only this task: BATCH/TASK, or one rollout: BATCH/TASK/RUN.")
    ] = "",
    form: Annotated[
        Literal["text", "jsonl", "parquet"],
        typer.Option("--format", help="Output format."),
    ] = "text",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; required for parquet.")
    ] = None,
) -> None:
    """Show or export trained samples: conversations, rewards, advantages, masks.

    Hugging Face's datasets reads both files: load_dataset("json", data_files=...), or "parquet".
    """
    from trinity.runtime.record.run_text import RunText

    from trinity_lab.samples_of_task import samples_of

    directory, places = _found(run_dir)
    chosen = [place for place in places if step is None or place.head.step == step]
    if not chosen:
        first, last = places[0].head.step, places[-1].head.step
        raise ConfigError(
            f"{directory} has samples of the steps {first} to {last}, not of step {step}"
        )
    if output is not None and is_standard_output(output):
        output = None
    if form == "parquet" and (output is None or (output.exists() and not output.is_file())):
        raise typer.BadParameter("a parquet file needs --output FILE")
    told = f"{directory}{'' if step is None else f', step {step}'}"
    samples = _some(samples_of(chosen, task=task.strip("/")), place=told, task=task)
    text = RunText.of(directory)
    if output is None:
        _write(samples, form=form, file=None, text=text)
        return
    with whole_file(output, run=run_dir) as file:
        count = _write(samples, form=form, file=file, text=text)
    typer.echo(f"{output}: {count} samples")


def _found(run_dir: Path) -> tuple[Path, list[Place]]:
    """Return the directory that has samples, and where they lie.

    Raises:
        ConfigError: there is none, or there are several.
    """
    from trinity.runtime.record.sample_files import places_of

    below = [path for depth in ("*", "*/*") for path in run_dir.glob(f"{depth}/samples")]
    folders = [run_dir, *sorted(path.parent for path in below)]
    found = {folder: places for folder in folders if (places := places_of(folder))}
    if len(found) == 1:
        return next(iter(found.items()))
    if found:
        named = "".join(
            f"\n  {folder}  (train steps {places[0].head.step} to {places[-1].head.step})"
            for folder, places in found.items()
        )
        raise ConfigError(
            f"{run_dir} has {len(found)} stages or runs with samples. Name one:{named}"
        )
    if not run_dir.exists():
        raise ConfigError(f"there is no folder {run_dir}. Name a run directory.")
    if any((run_dir / name).is_dir() for name in ("bench", "evaluations")):
        raise ConfigError(
            f"{run_dir} trained nothing that is kept. `trinity view {run_dir}` shows what its "
            f"evaluations sampled."
        )
    raise ConfigError(
        f"{run_dir} has no samples: the run trained nothing, or buffer.record_samples was off. "
        f"See buffer/explorer_output.jsonl for the experiences that workflows returned."
    )


def _some(samples: Iterator[list[Sample]], *, place: str, task: str) -> Iterator[list[Sample]]:
    """Give the samples of each step.

    Raises:
        ConfigError: there are none.
    """
    first = next(samples, None)
    if first is None:
        raise ConfigError(f"{place}: task {task} has no samples. Tasks are named BATCH/TASK.")
    yield first
    yield from samples


def _write(
    samples: Iterator[list[Sample]], *, form: str, file: Path | None, text: RunText | None
) -> int:
    """Write to a file, None: the terminal; return how many there are."""
    if form == "parquet":
        assert file is not None
        return _write_parquet(samples, file, text)
    shown = _shown if form == "text" else _json_line
    count = 0
    with file.open("w", encoding="utf-8") if file else nullcontext(sys.stdout) as opened:
        for step in samples:
            opened.writelines(shown(sample, text) for sample in step)
            count += len(step)
    return count


def _json_line(sample: Sample, text: RunText | None) -> str:
    return json.dumps(_row(sample, text)) + "\n"


def _write_parquet(samples: Iterator[list[Sample]], path: Path, text: RunText | None) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, wanted = 0, _schema()
    writer: Any = pq.ParquetWriter(path, wanted)  # untyped
    with writer:
        for step in samples:
            rows = [_row(sample, text) for sample in step]
            writer.write_table(pa.Table.from_pylist(rows, schema=wanted))
            count += len(step)
    return count


def _shown(sample: Sample, text: RunText | None) -> str:
    """Return a sample for a terminal, on which no text of a model can write more than letters."""
    head = f"step {sample.step}  {sample.eid}  reward {_number(sample.reward)}"
    head += f"  advantage {_number(sample.advantage)}"
    head += f"  trained {int(sample.mask.sum())} of {len(sample.mask)} tokens"
    start = sample.prompt_length
    parts = [sample.tokens[:start], sample.tokens[start:]]
    said = [plain(text.decode(part)) if text else " ".join(map(str, part)) for part in parts]
    return f"{head}\n{indented(said[0])}\n  ->\n{indented(said[1])}\n\n"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _schema() -> Any:  # Any: pyarrow's
    """Return the types of a row's columns."""
    import pyarrow as pa

    whole, number, text = pa.int64(), pa.float64(), pa.string()
    return pa.schema(
        {
            "step": whole,
            "eid": text,
            "task": text,
            "run": text,
            "reward": number,
            "advantage": number,
            "prompt": text,
            "response": text,
            "prompt_length": whole,
            "tokens": pa.list_(pa.int32()),
            "mask": pa.list_(pa.bool_()),
            "logprobs": pa.list_(pa.float32()),
            "advantages": pa.list_(pa.float32()),
            "temperature": number,
            "truncate_status": text,
            "metrics": text,
            "info": text,
        }
    )


def _row(sample: Sample, text: RunText | None) -> dict[str, Any]:
    start = sample.prompt_length
    return {
        "step": sample.step,
        "eid": sample.eid,
        "task": sample.task,
        "run": sample.run,
        "reward": sample.reward,
        "advantage": sample.advantage,
        "prompt": text.decode(sample.tokens[:start]) if text else None,
        "response": text.decode(sample.tokens[start:]) if text else None,
        "prompt_length": start,
        "tokens": sample.tokens.tolist(),
        "mask": sample.mask.tolist(),
        "logprobs": _rounded(sample.logprobs),
        "advantages": _rounded(sample.advantages),
        "temperature": sample.temperature,
        "truncate_status": sample.truncate_status,
        "metrics": json.dumps(sample.metrics),
        "info": json.dumps(sample.info),
    }


def _rounded(values: Any) -> list[float] | None:  # Any: numpy's array of float32, or None
    """Return the numbers in as many digits as they have, null for one that is none."""
    if values is None:
        return None
    return [float(str(value)) if value == value else None for value in values]  # type: ignore[misc]  # noqa: PLR0124
