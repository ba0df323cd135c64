"""``trinity.buffer.reader.file_reader``: the type that published selectors name."""

from trinity_compat_rft.paths.selectors import DataSource as _HFBatchReader

__all__ = ["_HFBatchReader"]
