"""A mode that a plugin brings: what produces the experiences of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trinity.common.models.chat_format import ChatFormat


class RunMode(Protocol):
    """A mode beside ``both``, ``explore``, ``train`` and ``bench``, in one process (``--local``).

    It is made from ``parts``, what the runtime knows of the stage, before anything large is loaded:
    a port that is taken or a key that is missing ends the run there. Then the runtime adds the
    storage and, where the configuration has a section ``trainer``, the trainer. A mode of a plugin
    has no tasks and no evaluation, and runs until its explorer ends it.
    """

    def add_workers(self, chat_format: ChatFormat) -> None:
        """Add to the parts the engines, the explorer and, beside a trainer, the sync method.

        Args:
            chat_format: of the trained model.

        Raises:
            TrinityError: one of them cannot be built.
        """
