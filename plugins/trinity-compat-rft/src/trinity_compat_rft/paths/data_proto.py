"""``verl``, where it is not installed: the type that published advantage functions name."""

from trinity.common.batch import ExperienceBatch as DataProto

__all__ = ["DataProto"]
