"""A folder with rescored rollouts, and the configuration that trains on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.experience import Experience

    from trinity_lab.kept_rollouts import KeptRun

EXPERIENCES, CONFIG = "experiences.jsonl", "run.yaml"
CORRECTION = "truncated_importance_sampling"
_OF_TRAINER = (  # keys that mean the same without rollouts
    "grad_clip", "max_token_len_per_gpu", "use_dynamic_bsz", "ulysses_sequence_parallel_size",
    "save_interval", "max_checkpoints_to_keep",
)  # fmt: skip


def check_folder(folder: Path) -> None:
    """Refuse a folder in which there is something.

    Raises:
        ConfigError: as said.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty. Name a new folder.")


def write_run(
    folder: Path, run: KeptRun, rows: Sequence[Experience], *, has_advantages: bool
) -> Path:
    """Write rows and configuration; return the configuration's path.

    Args:
        folder: new, or empty.
        run: that sampled the rows.
        rows: with the new rewards, group by group.
        has_advantages: whether theirs are those of the run's algorithm; else the trainer computes
            them.
    """
    import yaml

    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    without = () if has_advantages else ("advantages", "returns")
    with (folder / EXPERIENCES).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row.to_dict(without=without)) + "\n" for row in rows)
    path = folder / CONFIG
    settings = _settings(folder, run)
    path.write_text(f"{_HEAD}\n{yaml.safe_dump(settings, sort_keys=False)}", encoding="utf-8")
    return path


_HEAD = """\
# Written by trinity rescore. Rows were sampled by the policies of another run, whose
# log-probabilities they keep: rollout_correction weighs each token by how likely the policy in
# training is to sample it, relative to then.
"""


def _settings(folder: Path, run: KeptRun) -> dict[str, Any]:  # Any: yaml
    given = run.settings
    algorithm = dict(given["algorithm"])
    algorithm["rollout_correction"] = algorithm.get("rollout_correction") or CORRECTION
    trainer = given.get("trainer", {})
    return {
        "mode": "train",
        "project": given["project"],
        "name": folder.absolute().name,
        "checkpoint_root_dir": given["checkpoint_root_dir"],
        "seed": given["seed"],
        "algorithm": algorithm,
        "model": given["model"],
        "buffer": {
            "train_batch_size": given["buffer"]["train_batch_size"],
            "total_epochs": 1,
            "trainer_input": {
                "experience_buffer": {
                    "storage_type": "file",
                    "path": str(folder.absolute() / EXPERIENCES),
                }
            },
        },
        "trainer": {name: trainer[name] for name in _OF_TRAINER if trainer.get(name) is not None},
        "monitor": {"monitor_type": "jsonl"},
    }
