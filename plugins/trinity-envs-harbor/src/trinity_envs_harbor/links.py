"""Which links of an artifact a verifier is given.

A verifier may compare files: a link in place of the agent's answer, to what the verifier brings or
writes, would be compared with itself.
"""

from __future__ import annotations

import io
import logging
import posixpath
import tarfile
from itertools import dropwhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["leads_out", "warn_links", "without_links_out"]

logger = logging.getLogger("trinity.harbor")

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt")  # a virtual environment has links
_OF_VERIFIERS = ("/tests", "/solution", "/logs/verifier", "/proc")


def leads_out(link: str, target: str, artifact: str) -> bool:
    """Return whether a link leads neither into its artifact nor to programs.

    Args:
        link: its path; no folder of it is a link.
        target: what it says.
        artifact: the path at or below which it lies.

    >>> leads_out("/app/a", "deep/b", "/app"), leads_out("/app/a", "/tests/b", "/app")
    (False, True)
    """
    named = dropwhile(lambda part: part in {"", ".", ".."}, target.split("/"))
    if ".." in named:  # the folder that it goes back from may be a link
        return True
    found = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
    roots = (posixpath.normpath(artifact).rstrip("/"), *_PROGRAMS)
    is_in = any(root and found.startswith(f"{root}/") for root in roots)
    return not is_in or any(f"{found}/".startswith(f"{one}/") for one in _OF_VERIFIERS)


def without_links_out(packed: bytes, above: str, artifact: str) -> tuple[bytes, list[str]]:
    """Return a tar without the links that lead out, and the paths of those.

    Args:
        packed: the tar; further names of a link (hard links) go with it.
        above: the folder that its names are relative to.
        artifact: the path of what it holds. Where that is a link itself, podman packs what it leads
            to by another name, which no verifier expects: nothing is left, and the tar is empty.
    """
    kept, begins, left_out = [], 0, dict[str, str]()
    name = posixpath.basename(artifact)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
        for one in tar:
            if name and one.name.partition("/")[0] != name:
                return b"", [artifact]
            at = posixpath.join(above, one.name)
            is_out = one.issym() and leads_out(at, one.linkname, artifact)
            if is_out or (one.islnk() and one.linkname in left_out):
                left_out[one.name] = at
                kept.append(packed[begins : one.offset])
                begins = one.offset_data
        is_empty = len(left_out) == len(tar.getmembers())
    rest = b"" if is_empty else b"".join([*kept, packed[begins:]])
    return rest, list(left_out.values())


def warn_links(name: str, links: Sequence[str]) -> None:
    """Say which links of a task's artifacts are left out.

    Args:
        name: of the task.
        links: their paths.
    """
    if links:
        told = "%s: %d links among the artifacts are left out, as they lead out of them: %s%s."
        logger.warning(told, name, len(links), links[0], ", ..." if len(links) > 1 else "")
