"""Brings the commands of experiments to the command line, and the built-in advisors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.runtime.parts import RunInfo

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
        "rescore": ComponentSpec(
            "trinity_lab.rescore_command:rescore",
            "Score the rollouts of a run with another reward.",
        ),
        "eval": ComponentSpec(
            "trinity_lab.eval_command:evaluate", "Evaluate checkpoints or models on a file."
        ),
    }


@hookimpl
def trinity_rollout_engines() -> dict[str, ComponentSpec]:
    """Return the engine that asks a model behind an external API, to evaluate it."""
    return {
        "external": ComponentSpec(
            "trinity_lab.external.engine:ExternalEngine",
            "a model behind an OpenAI-compatible API, for mode bench",
            provides=frozenset({"preflight", "stop_strings"}),
        )
    }


@hookimpl
def trinity_configure(config: Config) -> None:
    """Give a run of an external model a tokenizer."""
    if config.model.external_model.enable:
        from trinity_lab.external.configure import use_bytes

        use_bytes(config)


@hookimpl
def trinity_config_notes(config: Config) -> list[str]:
    """Return what the data of a configuration are like."""
    from trinity_lab.data_notes import data_notes

    return data_notes(config)


@hookimpl
def trinity_run_started(run: RunInfo) -> None:
    """Keep what the sources of the run are."""
    from trinity_lab.provenance import keep_provenance

    keep_provenance(run)


@hookimpl
def trinity_advisors() -> dict[str, ComponentSpec]:
    """Return what says why a run does not learn."""
    advisors = "trinity_lab.advisors"
    return {
        "dead_groups": ComponentSpec(
            f"{advisors}.signal:DeadGroups", "no group has different rewards, or all is filtered"
        ),
        "difficulty": ComponentSpec(
            f"{advisors}.signal:Difficulty", "tasks that are all too hard, or all too easy"
        ),
        "reward_hacking": ComponentSpec(
            f"{advisors}.rewards:RewardHacking",
            "training reward up and held-out reward down; one part of the reward decides alone",
        ),
        "non_finite": ComponentSpec(
            f"{advisors}.rewards:NonFinite", "metrics of rollouts that are NaN or infinite"
        ),
        "length": ComponentSpec(
            f"{advisors}.replies:Length", "replies that are cut, or grow because length is paid"
        ),
        "replies": ComponentSpec(
            f"{advisors}.replies:Replies", "empty replies, loops, groups that say the same"
        ),
        "collapse": ComponentSpec(
            f"{advisors}.policy:Collapse", "reward, entropy or KL that break down"
        ),
        "gradients": ComponentSpec(
            f"{advisors}.policy:Gradients", "gradient norms that jump or are no numbers"
        ),
        "clipping": ComponentSpec(f"{advisors}.policy:Clipping", "tokens that are mostly clipped"),
        "learning_rate": ComponentSpec(
            f"{advisors}.policy:LearningRate", "steps that do not move the policy or the reward"
        ),
        "mismatch": ComponentSpec(
            f"{advisors}.rollouts:Mismatch", "other log-probabilities in rollout and trainer"
        ),
        "staleness": ComponentSpec(
            f"{advisors}.rollouts:Staleness", "samples that are old when they are trained"
        ),
        "failures": ComponentSpec(f"{advisors}.rollouts:Failures", "runs that fail"),
        "broken_chats": ComponentSpec(
            f"{advisors}.rollouts:BrokenChats", "chats that do not go on by token ids"
        ),
        "overlap": ComponentSpec(
            f"{advisors}.overlap:Overlap", "evaluation prompts that are trained on"
        ),
    }
