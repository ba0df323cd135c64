"""``trinity data``: look at a data set before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.cli.output import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity_lab.data_report import Finding


def data(  # noqa: PLR0913, PLR0917 -- the options of a command
    file: Annotated[str, typer.Argument(help="A file, a folder, or a Hugging Face id.")],
    held_out: Annotated[
        str, typer.Option("--eval", help="Evaluation set: report rows that are in both.")
    ] = "",
    prompt_key: Annotated[str, typer.Option(help="Column of the prompt.")] = "prompt",
    response_key: Annotated[str, typer.Option(help="Column of the answer.")] = "response",
    split: Annotated[
        str, typer.Option(help="Split of the data set, or a part: train[:95%].")
    ] = "train",
    eval_split: Annotated[str, typer.Option(help="The same of the evaluation set.")] = "train",
    model: Annotated[str, typer.Option(help="Model whose tokenizer counts tokens.")] = "",
    max_tokens: Annotated[
        int, typer.Option(min=0, help="Prompts with more are too long; needs --model.")
    ] = 0,
) -> None:
    """Report empty, repeated and too long rows, overlap with an evaluation set, one-sided answers.

    Exit code 1 if there is a problem.
    """
    from trinity_lab.data_report import findings_of, read_rows

    if max_tokens and not model:
        raise typer.BadParameter("--max-tokens needs --model, whose tokenizer counts")
    keys = {"prompt_key": prompt_key, "answer_key": response_key}
    rows = read_rows(file, split=split, **keys)
    others = read_rows(held_out, split=eval_split, **keys) if held_out else []
    counter = _counter(model) if model else None
    findings = findings_of(rows, held_out=others, count=counter, max_tokens=max_tokens)
    typer.echo(f"{plain(file)}: {len(rows)} rows")
    _echo(findings)
    if any(one.is_problem for one in findings):
        raise typer.Exit(1)


def _echo(findings: Sequence[Finding]) -> None:
    for one in findings:
        typer.echo(plain(f"{'problem' if one.is_problem else 'note'}: {one.text}"))
        for origin in one.rows:
            typer.echo(plain(f"  {origin}"))
    if not any(one.is_problem for one in findings):
        typer.echo("no problem found")


def _counter(model: str) -> Callable[[str], int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(Path(model)))
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
