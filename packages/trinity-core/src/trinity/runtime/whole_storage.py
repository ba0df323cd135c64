"""A storage with every ability: its own, and a safe stand-in for each that it lacks.

explorer --write--> the storage --read--> strategy
                        ^   what was put back, where the storage takes nothing back --^
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience

_UNKEPT = "unkept"  # in the state of a storage that keeps nothing: how many waited in it


class WholeStorage:
    """What the runtime makes of a registered storage.

    Args:
        storage: it.
        abilities: the words of what it can do beside the protocol ``Storage``.
        name: what a configuration calls it, for messages.
        is_fed: whether the explorer writes to it; an auxiliary buffer is only read, and one
            without a state begins anew.
    """

    def __init__(
        self, storage: Any, *, abilities: frozenset[str], name: str, is_fed: bool = True
    ) -> None:
        self._storage = storage  # Any: has the methods of its abilities
        self._can = abilities
        self._name = name
        self._is_fed = is_fed
        self._returned: list[Experience] = []  # put back, and given out first

    @property
    def gives_again(self) -> bool:
        """Return whether experiences that were read can be read again."""
        return "gives_again" in self._can and bool(self._storage.gives_again)

    @property
    def keeps(self) -> bool:
        """Return whether a checkpoint can hold what waits in it."""
        return bool({"waiting", "state"} & self._can)

    def __len__(self) -> int:
        """Return how many experiences all epochs give.

        Raises:
            ConfigError: the storage cannot tell.
        """
        if "length" not in self._can:
            raise ConfigError(
                f"storage {self._name} cannot tell how many experiences it holds, so nobody knows "
                f"how many steps mode train has. Set trainer.total_steps, or give it __len__ and "
                f"the word length in provides."
            )
        return len(self._storage)

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences."""
        self._storage.write(experiences)

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return what was put back, then what comes next.

        Raises:
            TimeoutError: too few came in time; none of them is lost.
            StopIteration: the writers closed and nothing is left.
        """
        own = self._returned[:count]
        rest = count - len(own)
        if rest:
            try:
                own = own + self._storage.read(
                    rest, timeout_s=timeout_s, min_model_version=min_model_version
                )
            except StopIteration:
                if not own:
                    raise
        self._returned = self._returned[count:]
        return own

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was read last and not used in its old place."""
        if "put_back" in self._can:
            self._storage.put_back(experiences)
        else:
            self._returned = [*experiences, *self._returned]

    def read_for(self, step: int) -> None:
        """Say which optimizer step reads from now on, where the storage notes that."""
        if "ledger" in self._can:
            self._storage.read_for(step)

    @property
    def gives_groups(self) -> bool:
        """Return whether it is read by the names of groups."""
        return "groups" in self._can

    def count_groups(self, names: Sequence[str]) -> list[int]:
        """Return how many experiences wait of each of these groups."""
        counts: list[int] = self._storage.count_groups(names)
        return counts

    def read_groups(self, names: Sequence[str]) -> list[Experience]:
        """Return what waits of these groups, one after the other."""
        rows: list[Experience] = self._storage.read_groups(names)
        return rows

    def begin_anew(self) -> None:
        """Say that the run begins from its start, where the storage outlives runs."""
        if "ledger" in self._can:
            self._storage.begin_anew()

    def forget(self, before: int) -> None:
        """Say before which step no run goes back, where the storage keeps what was trained."""
        if "ledger" in self._can:
            self._storage.forget(before)

    def drop_older(self, min_model_version: int) -> None:
        """Drop what older models made, as far as the storage can before a read."""
        if "drop_older" in self._can:
            self._storage.drop_older(min_model_version)

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""
        return len(self._returned) + int(self._storage.available())

    def waiting(self) -> list[Experience]:
        """Return what a checkpoint must hold, as the storage does not keep it by itself."""
        own = self._storage.waiting() if "waiting" in self._can else ()
        return [*self._returned, *own]

    def counts(self) -> Mapping[str, int]:
        """Return experiences by what became of them; empty: the storage does not count."""
        counts: Mapping[str, int] = self._storage.counts() if "counts" in self._can else {}
        return counts

    def state_dict(self) -> dict[str, Any]:
        """Return the storage's state, or how much a resumed run would lack of it."""
        if "state" in self._can:
            state: dict[str, Any] = self._storage.state_dict()
            return state
        return {} if self.keeps or not self._is_fed else {_UNKEPT: int(self._storage.available())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state.

        Raises:
            CheckpointError: experiences waited in a storage that could not give them away, or in
                a ledger that this is not.
        """
        waiting = state.get("waiting")
        if isinstance(waiting, list) and waiting and "groups" not in self._can:
            raise CheckpointError(
                f"{len(waiting)} groups of the checkpoint lie in a ledger, and storage "
                f"{self._name} does not read it: they would be lost. Set "
                f"buffer.trainer_input.experience_buffer.storage_type back to sql, with its path; "
                f"or set another name, and model.model_path to the checkpoint's "
                f"actor/huggingface, to begin anew from that model."
            )
        if "state" in self._can:
            self._storage.load_state_dict(state)
        elif state.get(_UNKEPT):
            raise CheckpointError(
                f"{state[_UNKEPT]} experiences waited in storage {self._name} at this checkpoint, "
                f"and the storage has neither waiting nor state, so they are gone. Set another "
                f"name to begin anew; to start from that model, set model.model_path to it."
            )

    def close(self) -> None:
        self._storage.close()
