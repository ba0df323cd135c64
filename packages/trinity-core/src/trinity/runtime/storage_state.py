"""What a checkpoint holds of a storage, and whether a run can go on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError
from trinity.runtime.group_storage import LedgerGroupStorage
from trinity.runtime.plugin_adapter import abilities_in
from trinity.runtime.record.checkpoint import FROM_MODEL

if TYPE_CHECKING:
    from trinity.common.ports import Storage

_UNKEPT = "unkept"  # in the state of a storage that keeps nothing: how many waited in it


def state_of(storage: Storage) -> dict[str, Any]:
    """Return the storage's state, or how much a resumed run would lack of it."""
    if {"waiting", "state"} & abilities_in(storage, "storage"):
        return storage.state_dict()
    return {_UNKEPT: storage.available() - len(storage.waiting())}


def load_state(storage: Storage, state: dict[str, Any], *, name: str) -> None:
    """Let a storage go on from a state.

    Args:
        storage: it.
        state: that :func:`state_of` gave (Any: each storage's own).
        name: what a configuration calls the storage, for messages.

    Raises:
        CheckpointError: experiences waited in a storage that could not give them away, or in
            a ledger that this is not.
    """
    waiting = state.get("waiting")
    is_ledger = "groups" in abilities_in(storage, "storage")
    is_ledger |= isinstance(storage, LedgerGroupStorage)
    if isinstance(waiting, list) and waiting and not is_ledger:
        raise CheckpointError(
            f"{len(waiting)} groups of the checkpoint lie in a ledger, and storage "
            f"{name} does not read it: they would be lost. Set buffer.trainer_input."
            f"experience_buffer.storage_type back to sql, with its path. {FROM_MODEL}"
        )
    if state.get(_UNKEPT):
        raise CheckpointError(
            f"{state[_UNKEPT]} experiences waited in storage {name} at this checkpoint, "
            f"and the storage has neither waiting nor state, so they are gone. {FROM_MODEL}"
        )
    storage.load_state_dict(state)
