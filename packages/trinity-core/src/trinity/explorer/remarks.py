"""What a run of trinity says once about the conversations of its workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.explorer.finish import EARLIER_CHAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience


def remarks(experiences: Sequence[Experience]) -> dict[str, str]:
    """Return what is to be said of these experiences, by what it is about."""
    said = {}
    broken = {exp.eid.rid for exp in experiences if EARLIER_CHAIN in exp.info}
    cut = {exp.eid.rid for exp in experiences if exp.truncate_status == "prompt_truncated"}
    if broken:
        said["broken"] = (
            f"the chat template rewrites earlier messages (thinking that is removed, for instance) "
            f"in {len(broken)} of this step's runs. Each unbroken chain of a run's replies is an "
            f"experience with the run's reward; the run counts once in its group. Later steps: the "
            f"same."
        )
    if cut:
        said["cut"] = (
            f"in {len(cut)} of this step's runs a conversation was longer than the model may read; "
            f"its beginning was cut off, and what was said after that is not trained on. Raise "
            f"model.max_model_len or model.max_prompt_tokens, or let the workflow make fewer or "
            f"shorter turns. Later steps: the same."
        )
    return said
