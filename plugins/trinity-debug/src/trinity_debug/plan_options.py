"""The options of ``trinity plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file.")]
Gpus = Annotated[
    int | None,
    typer.Option(min=0, max=1024, help="GPUs of each machine; default: this machine's GPUs."),
]
GpuMemory = Annotated[
    float, typer.Option(min=1, max=1e6, help="GB of each GPU, if you set --gpus.")
]
Local = Annotated[
    bool, typer.Option("--local", help="Plan for trinity run --local: one process, one GPU.")
]
Tflops = Annotated[
    float | None,
    typer.Option(
        min=1e-6, max=1e9, help="Measured TFLOP/s of each trainer GPU, for seconds of a step."
    ),
]
TokensPerS = Annotated[
    float | None,
    typer.Option(
        min=1e-6, max=1e12, help="Measured tokens/s of each engine, for seconds of a step."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value. Repeatable."),
]
Simulate = Annotated[bool, typer.Option("--simulate", help="Run the schedule on a virtual clock.")]
Record = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Simulate with the times of this run of FILE."),
]
Times = Annotated[
    list[str] | None,
    typer.Option(
        "--time",
        metavar="NAME=SECONDS",
        help="Simulate with a time: rollout, tool, train, sync, around, failure (of an engine), "
        "restart. MEAN, or MEAN:SLOWEST of a hundred. Repeatable.",
    ),
]
TrainGpus = Annotated[
    int | None,
    typer.Option(min=1, help="GPUs that the time of a train step is of; default: those of FILE."),
]
Shared = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1.0,
        help="Speed of each side while the other computes on the same cores or GPU.",
    ),
]
Steps = Annotated[int, typer.Option(min=2, help="Rollout steps to simulate.")]
MaxOffPolicy = Annotated[
    int, typer.Option(min=0, help="Off-policy steps that are acceptable, with --simulate.")
]
