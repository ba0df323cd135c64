"""``trinity.utils.log``: a logger whose lines stand in the log of the run."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(
    name: str | None = None,
    level: int | None = None,
    in_ray_actor: bool = False,  # noqa: FBT001, FBT002 -- published
) -> logging.Logger:
    """Return the logger ``trinity.NAME``.

    Args:
        name: of the logger; None: ``trinity`` itself.
        level: the least severe records that it passes on; None: as ``log.level`` says.
        in_ray_actor: published, and changes nothing: each room's records go to the run's folder.
    """
    logger = logging.getLogger(f"trinity.{name}" if name else "trinity")
    if level is not None:
        logger.setLevel(level)
    return logger
