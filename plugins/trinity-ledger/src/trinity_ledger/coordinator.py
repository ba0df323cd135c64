"""Explorer and trainer as runs of their own, which meet in a ledger and in a folder of weights.

    trinity run explorer.yaml           ledger                trinity run trainer.yaml
    wait for worker, take weights   <-- who lives, weights --   every sync_interval steps: publish
    explore a step, write         ------ experiences ----->   wait for a batch, train it

Neither starts or stops the other. Who waits looks about once a second; a side that nobody has heard
of for ``sync_timeout`` ends the wait of the other.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError
from trinity.runtime.record.lock import Owner
from trinity.runtime.record.result import RunStatus

from trinity_ledger.membership import Member, Membership, Published

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.ports import WeightSnapshot

    from trinity_ledger.database import Database
    from trinity_ledger.weights_folder import WeightsFolder

logger = logging.getLogger("trinity.ledger")

BEAT_S = 5.0  # so often a side says that it lives
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.02, 1.0
_TELL_S = 60.0  # after so long a wait is told
_SILENT_S = 3 * BEAT_S  # after so long, a trainer may be dead
_BACK_S = 10.0  # how long weights that are being replaced may be missing


class Coordinator:
    """What one side tells the others and hears of them; beats until it is closed.

    Args:
        parts: of the run of this side (Any: the runtime's ``Parts``).
        database: gives a connection of its own to the ledger.
        weights: by which they travel.

    Raises:
        ConfigError: another process is this side of the ledger.
    """

    def __init__(
        self, parts: Any, *, database: Callable[[], Database], weights: WeightsFolder
    ) -> None:
        config = parts.config
        self.is_trainer = config.mode == "train"
        self.name = "trainer" if self.is_trainer else config.explorer.name
        self._timeout_s = config.synchronizer.sync_timeout
        self._interrupt, self._say = parts.interrupt, parts.display.say
        self.presence = Membership(database(), is_gone=_is_gone)
        self._beats = Membership(database(), is_gone=_is_gone)
        self.weights = weights
        self.side = _this_side(self.name)
        self._over = threading.Event()
        self._lock = threading.Lock()
        told = parts.rundir.read_status(mode=config.mode).get("status")
        self.presence.enter(
            self.side, is_trainer=self.is_trainer, asks_for_more=told == RunStatus.FINISHED.value
        )
        self._beater = threading.Thread(target=self._heartbeat, name="trinity-beat", daemon=True)
        self._beater.start()

    def note(self, **changes: Any) -> None:
        """Say that something about this side is another now (Any: as the fields of ``Member``)."""
        with self._lock:
            self.side = replace(self.side, **changes)
        self.presence.heartbeat(self.side, is_trainer=self.is_trainer)

    def wait(
        self, is_there: Callable[[], bool], *, what: str, of: Callable[[], list[Member]]
    ) -> None:
        """Return when something is there.

        Args:
            is_there: tells it.
            what: it is, for who watches.
            of: the sides that it comes from.

        Raises:
            StopIteration: the run was asked to stop.
            TrinityError: nobody has heard of those sides for ``sync_timeout``.
        """
        began = heard = time.monotonic()  # of them last: clocks of machines differ, and jump
        pause, is_told = _SHORTEST_LOOK_S, False
        words: set[tuple[str, str, float]] | None = None
        while not is_there():
            if self._interrupt.is_requested:
                raise StopIteration
            waited = time.monotonic() - began
            if pause >= _LONGEST_LOOK_S:
                sides = of()
                words, before = {(side.name, side.token, side.beat) for side in sides}, words
                heard = began + waited if before not in (None, words) else heard
                if began + waited - heard > self._timeout_s:
                    raise TrinityError(self._unresponsive_text(sides, what=what, waited_s=waited))
                if not self.side.waits_for:
                    self.note(waits_for=what)
                if waited > _TELL_S and not is_told:
                    is_told = True
                    logger.warning("%s waits for %s (%s)", self.name, what, _who(sides))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)
        if self.side.waits_for:
            self.note(waits_for="")

    def publish(self, snapshot: WeightSnapshot) -> None:
        """Write weights for the explorers, and tell them.

        Raises:
            CheckpointError: they cannot be written.
        """
        digest = self.weights.write(snapshot)
        path = f"weights/v{snapshot.version}"
        self.presence.publish(Published(version=snapshot.version, path=path, digest=digest))

    def newest_weights(self, *, but: tuple[int, str]) -> tuple[WeightSnapshot, str] | None:
        """Return the weights to explore with and their digest; None: they are those of ``but``.

        Raises:
            StopIteration: the run was asked to stop.
            TrinityError: the ledger tells of weights that are not in the folder.
        """
        found: list[tuple[WeightSnapshot, str]] = []
        looked: tuple[int, str] = but  # at what last, and until when
        limit = 0.0

        def is_there() -> bool:
            nonlocal looked, limit
            published = self.presence.published()
            if published is None or (published.version, published.digest) == but:
                return True
            snapshot = self.weights.read(published.version, digest=published.digest)
            if snapshot is not None:
                found.append((snapshot, published.digest))
                return True
            now, is_other = time.monotonic(), looked != (published.version, published.digest)
            if is_other or not self._is_trainer_heard_of():
                looked, limit = (published.version, published.digest), now + _BACK_S
            if now > limit:
                raise TrinityError(_missing(published))
            return False

        self.wait(is_there, what="the newest weights", of=self.trainers)
        return found[0] if found else None

    def trainers(self) -> list[Member]:
        """Return the trainer, if one has begun."""
        trainer = self.presence.trainer()
        return [] if trainer is None else [trainer]

    def finish(self) -> None:
        """Say that this side did all that it was asked for."""
        self.note(state="finished")

    def close(self) -> None:
        """Say that this side works no more; safe to call twice."""
        if self._over.is_set():
            return
        self._over.set()
        self._beater.join(timeout=BEAT_S)
        try:
            if not self.side.is_finished:
                self.note(state="stopped")
        finally:
            self.presence.close()

    def _heartbeat(self) -> None:
        while not self._over.wait(min(BEAT_S, self._timeout_s / 4)):
            try:
                with self._lock:
                    self._beats.heartbeat(self.side, is_trainer=self.is_trainer)
            except TrinityError as error:
                logger.warning("the ledger did not hear that %s lives: %s", self.name, error)
        self._beats.close()

    def _is_trainer_heard_of(self) -> bool:
        """Return whether it could have put back weights that are missing, and did not."""
        return any(
            side.age_s() < _SILENT_S if side.state == "working" else side.state != "stopped"
            for side in self.trainers()
        )

    def _unresponsive_text(self, sides: list[Member], *, what: str, waited_s: float) -> str:
        return (
            f"{self.name} waited {waited_s:.0f} s for {what}, and for sync_timeout "
            f"({self._timeout_s:g} s) nobody was heard of: {_who(sides)}. Start the other side "
            f"again, then run the same command: it continues from what is saved."
        )


def _missing(published: Published) -> str:
    return (
        f"the ledger tells of weights in {published.path}, which are not in the run directory of "
        f"this explorer, or are damaged. Do explorer and trainer have the same "
        f"checkpoint_root_dir, on a disk that both see? Correct that, then run the same command."
    )


def _who(sides: list[Member]) -> str:
    return "; ".join(f"{side.name}: {side.state}, {side.where()}" for side in sides) or (
        "it has never begun"
    )


def _this_side(name: str) -> Member:
    owner = Owner.of_this_process()
    return Member(
        name=name,
        token=f"{secrets.token_hex(8)} {owner.started}",
        host=socket.gethostname(),
        pid=os.getpid(),
        since=time.time(),
    )


def _is_gone(side: Member) -> bool:
    started = side.token.partition(" ")[2]
    return Owner(host=side.host, pid=side.pid, started=started, since="").is_gone()
