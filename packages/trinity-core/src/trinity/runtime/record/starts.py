"""Note each start of a stage, for people: when it was, with which plugins, what was changed."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trinity.runtime.record.changes import changes_of, shown_change

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)

FILE_NAME = "starts.jsonl"


def note_start(
    config: Config, *, before: dict[str, Any], manager: PluginManager, rundir: RunDir
) -> None:
    """Add a line to ``starts.jsonl``; where it cannot be written, the run goes on without.

    Args:
        config: of the stage, resolved.
        before: ``run.json`` of the start before; empty: there was none (Any: json).
        manager: of the plugins.
        rundir: of the stage, whose ``config.yaml`` is still that of the start before.
    """
    plugins = {
        str(row["distribution"] or row["plugin"]): f"{row['version']} {row['source_hash']}"
        for row in manager.describe()
    }
    line = {
        "at": datetime.now().astimezone().isoformat(timespec="seconds"),
        "mode": config.mode,
        "explored": before.get("explore_steps", 0),
        "trained": before.get("train_steps", 0),
        "digest": manager.digest(),
        "plugins": plugins,
        "changes": [shown_change(one) for one in changes_of(config, rundir=rundir)],
    }
    try:
        with (rundir.path / FILE_NAME).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        logger.warning("%s cannot be written: %s", rundir.path / FILE_NAME, error)
