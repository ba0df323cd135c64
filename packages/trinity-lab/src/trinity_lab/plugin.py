"""Brings the commands of experiments to the command line."""

from __future__ import annotations

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the commands that start many runs, and that judge them."""
    return {
        "sweep": ComponentSpec(
            "trinity_lab.sweep_command:sweep", "Run a configuration for many settings and seeds."
        ),
        "compare": ComponentSpec(
            "trinity_lab.compare_command:compare",
            "Compare runs of several seeds, with significance tests.",
        ),
        "data": ComponentSpec(
            "trinity_lab.data_command:data", "Find bad rows of a data set before training on it."
        ),
        "experiences": ComponentSpec(
            "trinity_lab.experiences_command:experiences",
            "Show or export the samples that a run trained.",
        ),
        "export": ComponentSpec(
            "trinity_lab.export_command:export", "Write a trained model, with its model card."
        ),
        "eval": ComponentSpec(
            "trinity_lab.eval_command:evaluate", "Evaluate checkpoints or models on a file."
        ),
    }
