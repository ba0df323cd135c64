"""Requests that the server may have died of: after a few kills they are not retried.

Those for samples are begun together, so each of them counts each kill. Those of runs are done one
at a time: each counts when it begins, and one that waits counts none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity_tinker.store import Request, Store

__all__ = ["Kills"]

_MOST_OF_SAMPLE, _MOST_OF_RUN = 2, 3
_SAMPLE_KILLED = (
    f"the server was killed {_MOST_OF_SAMPLE} times before this request was answered, so it is not "
    f"retried. If memory runs out, ask for fewer samples or a shorter text; else send it again."
)
_RUN_KILLED = (
    f"the server was killed {_MOST_OF_RUN} times while executing this request, so it is not "
    f"retried. If memory runs out, send fewer or shorter rows at a time, or start the server with "
    f"a lower --max-tokens."
)


class Kills:
    """Counts, in the journal, the kills that a request outlived without a result.

    Args:
        store: the journal.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def given_up(self) -> list[tuple[Request, str]]:
        """Count at a start that it follows a kill, unless there was an end.

        Returns:
            What is not retried, and why.
        """
        self._store.write(
            "UPDATE requests SET kills = kills + 1 WHERE finished IS NULL AND kind = 'sample'"
        )
        killed = self._store.requests(
            "finished IS NULL AND kills >= CASE kind WHEN 'sample' THEN ? ELSE ? END",
            *(_MOST_OF_SAMPLE, _MOST_OF_RUN),
        )
        return [(one, _SAMPLE_KILLED if one.kind == "sample" else _RUN_KILLED) for one in killed]

    def note_begun(self, request: Request) -> None:
        """Count that a request of a run begins; a result ends the count."""
        self._store.write("UPDATE requests SET kills = MAX(kills, 0) + 1 WHERE id = ?", request.id)

    def note_end(self, *, executing: Request | None = None) -> None:
        """Note that the server ends by itself: the next start follows no kill.

        Args:
            executing: the request that the server still executes. What kills a process for its
                memory often sends SIGTERM first; a kill before this request is done counts.
        """
        self._store.write(
            "UPDATE requests SET kills = -1 WHERE finished IS NULL AND id IS NOT ?",
            executing.id if executing is not None else None,
        )
