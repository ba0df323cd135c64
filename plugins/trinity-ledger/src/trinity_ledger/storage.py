"""The buffer between exploring and training as tables of SQLite or PostgreSQL.

explorer --write()--> ledger --read()--> trainer      what was read stays, with its step

A trainer that is offline reads what is there, once: nobody writes beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Storage, StorageUse
from trinity.errors import BufferClosedError, CheckpointError, ConfigError, DataError

from trinity_ledger.address import address_of
from trinity_ledger.packets import BROKEN, experiences_in
from trinity_ledger.place import database_of, ledger_of, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.experience import Experience
    from trinity.common.ports import StorageReport

    from trinity_ledger.address import Address
    from trinity_ledger.coordinator import Coordinator
    from trinity_ledger.database import Database
    from trinity_ledger.packets import Claimed, StoredPacket
    from trinity_ledger.seal import Waiting

logger = logging.getLogger("trinity.ledger")

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.5


class TooOldError(TimeoutError):
    """What waited was too old for a step and is dropped; what is left are too few."""


class SqlStorage(Storage):
    """First in, first out; what each optimizer step read is written down.

    Args:
        config: the section of the buffer: how often a transaction is made again, what is kept.
        path: of the database; see ``address_of``.
        use: whose run writes and reads here.

    Raises:
        ConfigError: the path names no database, the ledger is another run's, or it holds nothing
            that could be trained and nobody writes to it.
        DataError: the database cannot be used.
    """

    is_in_order = True

    def __init__(
        self,
        config: ExperienceBufferConfig,
        *,
        path: Path | str | None = None,
        use: StorageUse | None = None,
    ) -> None:
        given = path_of(path or config.path, use=use)
        self._use = use = use or StorageUse()
        self._name = address_of(given).name
        self._connected = partial(database_of, config, path=given)
        database = self._connected()
        if use.is_offline:
            _refuse_empty(database, address_of(given))
        self._ledger = ledger_of(database, path=given, use=use)
        # rows that a training found are not its own: another one may begin from them
        self._keeps_all = config.keep_bodies == "all" or use.is_offline
        self._changed = threading.Condition()
        self._is_closed = False
        self._step, self._is_told = 0, False  # of the reads; whether somebody says it
        self._taken: list[tuple[str, int]] = []  # uid and id of what this step has,
        self._num_claimed = 0  # and how many it ever claimed
        self._keep_steps = config.keep_steps
        self._is_unchecked_said = self._is_compacting_said = False

    def __len__(self) -> int:
        """Return how many experiences it gives, with those that were given already."""
        return self._ledger.num_given()

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store experiences in one transaction; those that are there already are left out.

        Raises:
            BufferClosedError: the storage was closed.
            DataError: the database cannot be used, or one of them cannot be stored.
        """
        if self._is_closed:
            raise BufferClosedError(f"{self._name} is closed; it accepts no more experiences")
        if not experiences:
            return
        num_new = self._ledger.write([self._own(experience) for experience in experiences])
        if self._use.side == "explore" and num_new < len(experiences):
            logger.warning(
                "the ledger %s already has %d of %d experiences of explorer %s and keeps them. "
                "After a kill this is expected, because the explorer repeats its step. If it "
                "happens again, another explorer has the same name: set explorer.name.",
                self._name, len(experiences) - num_new, len(experiences), self._use.owner,
            )  # fmt: skip
        with self._changed:
            self._changed.notify_all()

    def read_for(self, step: int) -> None:
        """Note which optimizer step reads from now on."""
        self._step, self._is_told = step, True
        self._taken, self._num_claimed = [], 0

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the oldest experiences; those of older models are dropped.

        Raises:
            DataError: the database cannot be used, or a packet in it is damaged.
            TimeoutError: too few came in time; all that did stay in the ledger.
            TooOldError: the same, at once: a standalone trainer waits elsewhere.
            StopIteration: the writers closed and nothing is left.
        """
        if not self._is_told:
            self._step, self._taken, self._num_claimed = self._step + 1, [], 0
        limit, pause = time.monotonic() + timeout_s, _SHORTEST_WAIT_S
        while True:
            is_over = self._is_over()  # before the claim: what comes in between is claimed
            claimed = self._claim(count, may_be_fewer=is_over, min_version=min_model_version)
            experiences = self._read(claimed)
            if experiences:
                return self._filled_up(experiences, count, min_version=min_model_version)
            if is_over and not claimed:
                raise StopIteration
            if min_model_version > 0 and not claimed and self._use.side == "train":
                raise TooOldError(self._too_few(count, 0.0))
            left = limit - time.monotonic()
            if left <= 0 and not claimed:
                raise TimeoutError(self._too_few(count, timeout_s))
            with self._changed:
                if not claimed and not self._is_closed:
                    self._changed.wait(min(pause, max(left, 0.0)))
            pause = min(2 * pause, _LONGEST_WAIT_S)

    def count_groups(self, names: Sequence[str]) -> list[int]:
        """Return how many experiences wait of each of these groups."""
        return self._ledger.count_groups(names)

    def read_groups(self, names: Sequence[str]) -> list[Experience]:
        """Return what waits of these groups, one after the other, without what is left out.

        Raises:
            DataError: the database cannot be used, or a packet in it is damaged.
        """
        claimed = self._ledger.claim_groups(names, step=self._step, first=self._num_claimed)
        self._num_claimed += len(claimed)
        return self._read(claimed)

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Let what this step read and did not use wait again, in its old place."""
        names = {experience.eid.uid for experience in experiences}
        returned = [one for uid, one in self._taken if uid in names]
        self._ledger.unclaim(returned)
        self._taken = [(uid, one) for uid, one in self._taken if uid not in names]

    def drop_older(self, min_model_version: int) -> None:
        """Drop what older models made."""
        self._ledger.drop_older(min_model_version, step=self._step)

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""
        return self._ledger.num_waiting()

    def begin_anew(self) -> None:
        """Forget what a run wrote that begins from its start; of a trainer's, what was read."""
        if self._use.side == "both":
            self._ledger.begin_anew()
        elif self._use.side == "train":
            self._ledger.cut_back(0)

    def forget(self, before: int) -> None:
        """Delete the contents of what steps up to this one trained, unless all is kept.

        Of steps long before it the rows go, too.
        """
        if self._keeps_all or self._use.side == "explore":
            return
        last = self._ledger.forget_bodies(before, keep_steps=self._keep_steps)
        if last and not self._is_compacting_said:
            self._is_compacting_said = True
            logger.info(
                "the ledger %s keeps the rows of %d train steps before the oldest checkpoint "
                "(keep_steps): those up to step %d are deleted, their counts stay in step_record",
                self._name, self._keep_steps, last,
            )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return which step trained last; all that was written so far is on the disk then."""
        if self._use.side == "explore":
            return {"kept": self._ledger.keep_written()}
        trained = self._step if self._taken else max(0, self._step - 1)
        self._ledger.keep(trained, asked=self._step)
        return {"trained": trained, "waiting": None}

    def seal(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a checkpoint with what shows later that the ledger still has it."""
        if "trained" not in state:
            return state
        noted = self._ledger.seal(state["trained"], waiting=self._waiting(state))
        return {**state, "ledger": noted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there: what later steps read waits again, what came later is removed.

        Raises:
            CheckpointError: the ledger was not there at that checkpoint, or is another now.
        """
        if self._use.side == "explore":
            self._check_kept(state.get("kept", 0.0))
        if self._use.side == "explore" or "trained" not in state:
            return
        saved = self._ledger.saved_step()
        if saved < state["trained"]:
            raise CheckpointError(
                f"the ledger {self._name} has {saved} train steps, but the checkpoint is of train "
                f"step {state['trained']}: the run wrote another ledger. Correct its path, restore "
                f"it from a copy, or set another name to start a new run."
            )
        self._ledger.cut_back(
            state["trained"], waiting=self._waiting(state), noted=state.get("ledger")
        )
        self._step, self._taken, self._num_claimed = state["trained"], [], 0

    def _check_kept(self, then: float) -> None:
        """Hold that the ledger has what this explorer wrote before its checkpoint.

        Raises:
            CheckpointError: its last commits are gone.
        """
        if self._ledger.last_kept() < then:
            owner = self._use.owner
            raise CheckpointError(
                f"the ledger {self._name} lost the last commits that explorer {owner} made before "
                f"its checkpoint: somebody removed or shortened the file -wal beside it, or put an "
                f"older copy back. Its tasks would not be repeated. Restore the database with its "
                f"-wal file; or remove the run directory of the explorer, to begin its tasks anew."
            )

    def connect(self, parts: Any) -> Coordinator:
        """Let the parts of a standalone run wait for the other side.

        Raises:
            ConfigError: another process is this side of the ledger.
        """
        from trinity_ledger.standalone import connected  # other runs have no use for it

        assert self._use.directory is not None, "the runtime says it"
        weights = self._use.directory.parent / "weights"
        return connected(parts, database=self._connected, weights=weights, ledger=self._ledger)

    @classmethod
    def report(
        cls, directory: Path, *, path: str, may_ask_servers: bool = False
    ) -> StorageReport | None:
        """Return what the ledger of a run tells.

        Raises:
            DataError: it cannot be read.
        """
        from trinity_ledger.report import report_of

        return report_of(directory, path=path, may_ask_servers=may_ask_servers)

    def close(self) -> None:
        """Take no more; what is held can still be read. A reader that waits goes on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._ledger.close()

    def _own(self, experience: Experience) -> Experience:
        """Return it under an id that no other explorer gives, where there may be others."""
        if not self._use.owner:
            return experience
        eid = replace(experience.eid, batch=f"{self._use.owner}:{experience.eid.batch}")
        return replace(experience, eid=eid)

    def _waiting(self, state: dict[str, Any]) -> Waiting:
        return state["waiting"] if self._use.side == "both" else None

    def _is_over(self) -> bool:
        if self._is_closed or self._use.is_offline:
            return True
        return self._use.side == "train" and self._ledger.are_writers_finished()

    def _claim(self, count: int, *, may_be_fewer: bool, min_version: int = 0) -> list[Claimed]:
        claimed = self._ledger.claim(
            count,
            step=self._step,
            first=self._num_claimed,
            may_be_fewer=may_be_fewer,
            min_version=min_version,
        )
        self._num_claimed += len(claimed)
        return claimed

    def _filled_up(
        self, experiences: list[Experience], count: int, *, min_version: int
    ) -> list[Experience]:
        """Return them with what comes next in place of those that were left out, if it is."""
        while len(experiences) < count:
            missing = count - len(experiences)
            claimed = self._claim(missing, may_be_fewer=True, min_version=min_version)
            if not claimed:
                break
            experiences = experiences + self._read(claimed)
        return experiences

    def _read(self, claimed: Sequence[Claimed]) -> list[Experience]:
        """Return the claimed experiences, without those of packets that are left out.

        Raises:
            DataError: a packet is not what was written.
        """
        rows: dict[int, list[Claimed]] = {}
        for one in claimed:
            rows.setdefault(one.packet, []).append(one)
        packets = self._ledger.packets(list(rows))
        given: dict[int, Experience] = {}
        for packet, own in rows.items():
            stored = packets.get(packet)
            if stored is not None and stored.outcome == BROKEN:
                self._leave_out(packet, num_rows=len(own))
                continue
            found = self._experiences_in(stored, own)
            given |= {row.id: one for row, one in zip(own, found, strict=True)}
        whole = [one for one in claimed if one.id in given]
        self._taken += [(given[one.id].eid.uid, one.id) for one in whole]
        return [given[one.id] for one in whole]

    def _experiences_in(
        self, stored: StoredPacket | None, rows: Sequence[Claimed]
    ) -> list[Experience]:
        packet = rows[0].packet
        is_unchecked = packet <= self._ledger.unchecked
        if is_unchecked and not self._is_unchecked_said:
            self._is_unchecked_said = True
            logger.warning(
                "an earlier version of Trinity wrote packets 1 to %d of the ledger %s, without a "
                "SHA-256: a damaged one may be trained. Later packets are checked.",
                self._ledger.unchecked, self._name,
            )  # fmt: skip
        try:
            return experiences_in(stored, rows, is_unchecked=is_unchecked)
        except DataError as error:
            raise DataError(self._ledger.damage(packet, rows, str(error))) from error

    def _leave_out(self, packet: int, *, num_rows: int) -> None:
        self._ledger.drop_broken(packet, step=self._step)
        logger.warning(
            "leaving out packet %d of the ledger %s with %d experiences, as its outcome is %s",
            packet, self._name, num_rows, BROKEN,
        )  # fmt: skip

    def _too_few(self, count: int, timeout_s: float) -> str:
        return (
            f"the ledger {self._name} has {self.available()} of the {count} requested experiences "
            f"after {timeout_s:.0f} s. They stay in it. Check that the explorer runs. If its steps "
            f"are slow, raise buffer.trainer_input.experience_buffer.max_read_timeout."
        )


def _refuse_empty(database: Database, address: Address) -> None:
    """Hold that there is something to train; what is not there is not made.

    Raises:
        ConfigError: there is not.
    """
    query = "SELECT 1 FROM experience WHERE dropped IS NULL LIMIT 1"
    what = f"the ledger {address.name} has no trainable experiences"
    if address.file is not None and not address.file.exists():
        what = f"there is no ledger {address.name}"
    elif database.read(lambda rows: rows.all(query)):
        return
    raise ConfigError(
        f"{what}, and with synchronizer.standalone: false mode train trains once on the "
        f"experiences in the ledger. Fill it first: run mode explore with the same project, "
        f"group, name, checkpoint_root_dir and path, and synchronizer.standalone: false."
    )
