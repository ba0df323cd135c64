"""``trinity tinker serve``: train and sample for clients of the Tinker API."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from trinity.errors import ConfigError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)

_NAME = re.compile(r"[^/=\s]+/[^/=\s]+")


@app.callback()
def tinker() -> None:
    """Serve models of this machine to clients of the Tinker API."""


Models = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=PATH",
        help="A model: the name that clients use (organisation/name), and its folder or "
        "Hugging Face id. Repeatable.",
    ),
]
Data = Annotated[Path, typer.Option(help="Folder of runs, checkpoints and requests.")]
Host = Annotated[str, typer.Option(help="Address to listen at.")]
Port = Annotated[int, typer.Option(help="Port; 0: a free one.")]
Alpha = Annotated[int, typer.Option(min=1, help="Scale of adapters of new runs: alpha / rank.")]
MaxModels = Annotated[int, typer.Option(min=1, help="Runs in memory at a time.")]
MaxSamplers = Annotated[
    int, typer.Option(min=1, help="Adapters of checkpoints in memory that are sampled.")
]
Precision = Annotated[str, typer.Option(help="float32, or bfloat16; adapters are float32.")]
MaxLength = Annotated[
    int | None, typer.Option(min=2, help="Most tokens of a text; default: the model's.")
]
MaxTokens = Annotated[
    int, typer.Option(min=1, help="Most tokens of a micro-batch, padding counted.")
]
KeepResults = Annotated[
    float, typer.Option(min=0, help="Seconds that a result is kept once a client has it.")
]
KeepUnfetched = Annotated[
    float, typer.Option(min=0, help="Seconds that a result is kept which no client fetches.")
]
Keys = Annotated[
    str, typer.Option(envvar="TRINITY_TINKER_KEYS", hidden=True, help="Keys, with commas.")
]


@app.command()
def serve(  # noqa: PLR0913, PLR0917 -- the options of a command
    model: Models,
    data: Data = Path("tinker"),
    host: Host = "127.0.0.1",
    port: Port = 8011,
    lora_alpha: Alpha = 32,
    max_models: MaxModels = 8,
    max_samplers: MaxSamplers = 32,
    precision: Precision = "float32",
    max_length: MaxLength = None,
    max_tokens: MaxTokens = 4096,
    keep_results: KeepResults = 600.0,
    keep_unfetched: KeepUnfetched = 86400.0,
    keys: Keys = "",
) -> None:
    """Serve models to clients of the Tinker API: they train LoRA adapters, save and sample.

    Keys of clients stand in TRINITY_TINKER_KEYS, separated by commas; each begins with tml-.
    Without it, a key is printed. Ctrl-C ends the server; the same command goes on.
    """
    named = [_named(text) for text in model]
    names = [name for name, _ in named]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"--model names {min(twice)} twice. Give each model a name of its own.")
    if precision not in {"float32", "bfloat16"}:
        raise ConfigError(f"--precision is {precision!r}. Use float32 or bfloat16.")
    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.expiry import ServiceTimes
    from trinity_tinker.server import TinkerServer

    bases = [
        BaseModel(name, path, precision=precision, max_length=max_length, max_tokens=max_tokens)
        for name, path in named
    ]
    server = TinkerServer(
        bases,
        data,
        host=host,
        port=port,
        keys=_keys(keys),
        alpha=lora_alpha,
        max_models=max_models,
        max_samplers=max_samplers,
        times=ServiceTimes(keeps_results_s=keep_results, keeps_unfetched_s=keep_unfetched),
    )
    typer.echo(f"serving {', '.join(names)} at {server.base_url}; set TINKER_BASE_URL to it")
    if not keys:
        typer.echo(f"key for this start: TINKER_API_KEY={server.key}")
    _wait_for_signal()
    server.close()


def _named(text: str) -> tuple[str, str]:
    name, found, path = text.partition("=")
    if not found or not path or not _NAME.fullmatch(name):
        raise ConfigError(
            f"--model is {text!r}. Use ORGANISATION/NAME=PATH: clients load the tokenizer by the "
            f"name, and shorten one with more slashes."
        )
    return name, path


def _keys(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    for key in keys:
        if not key.startswith("tml-"):
            raise ConfigError(
                "TRINITY_TINKER_KEYS has a key that does not begin with 'tml-'; clients refuse it. "
                "Use keys such as tml-my-long-key."
            )
    return keys


def _wait_for_signal() -> None:
    is_over = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_given: is_over.set())
    while not is_over.wait(3600.0):
        pass
