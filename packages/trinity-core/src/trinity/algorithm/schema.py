"""Name the kind of rows an algorithm trains on."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["CPTDataModel", "DPODataModel", "ExperienceModel", "SFTDataModel"]


class ExperienceModel:
    """Rows that a workflow made: tokens, log-probabilities, a reward."""

    name: ClassVar[str] = "experience"


class SFTDataModel:
    """Rows to imitate: tokens, or the messages they are made of."""

    name: ClassVar[str] = "sft"


class CPTDataModel:
    """Rows of plain text to go on with pre-training."""

    name: ClassVar[str] = "cpt"


class DPODataModel:
    """Pairs of a preferred and another answer to one prompt."""

    name: ClassVar[str] = "dpo"
