"""An engine's room as one that weights are sent to."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.errors import EngineBrokenError, ModelError, RoomLostError, RoomWaitsError

if TYPE_CHECKING:
    from threading import Event

    from trinity.common.ports import WeightSnapshot, WeightVersion
    from trinity.runtime.ray.weight_transfer import WeightReceiver

logger = logging.getLogger(__name__)


class ReceivesWeights:
    """Takes weights from the trainer's process, beside those that come by reference.

    SERVING -> LOADING -> SERVING with others, or POISONED: weights did not arrive whole. Then it
    keeps those that it has and answers nobody, until others are loaded.
    """

    _number: int  # of the engine
    _engine: Any  # Any: a registered engine
    _serves: Event
    _is_loaded: bool
    _is_poisoned = False

    def open(self, session: str) -> None:
        """Begin a session; the one before is over."""
        raise NotImplementedError

    def serve(self) -> None:
        """Answer from now on."""
        raise NotImplementedError

    def weights(self, step: str, *told: Any) -> Any:
        """Take a step of a sync from process to process; what it gives is its own (Any).

        Raises:
            TransferError: the way between the processes broke.
        """
        try:
            return getattr(self._weight_receiver, step)(*told)
        except Exception:
            if step == "receive":
                self._poison()
            raise

    def load_received(self) -> WeightVersion:
        """Load the weights that came whole, before the next batch; return their version.

        Raises:
            RoomLostError: none came: this process is a new one.
            ModelError: they are of another model, or the engine took others.
        """
        snapshot = self._weight_receiver.taken()
        if snapshot is None:
            raise RoomLostError(f"engine-{self._number}", cause="it was started anew")
        self._load(snapshot)
        if self._engine.version != snapshot.version:
            self._poison()
            raise ModelError(
                f"engine-{self._number} was given the weights of version {snapshot.version} and "
                f"says that it has version {self._engine.version}: it answers nothing. Its "
                f"load_weights has to set the version."
            )
        version = snapshot.version
        del snapshot
        self._weight_receiver.let_go()
        self._is_loaded, self._is_poisoned = True, False
        self.serve()
        return version

    def _load(self, snapshot: WeightSnapshot) -> None:
        try:
            self._engine.load_weights(snapshot)
        except EngineBrokenError as error:
            raise self._ended(error) from error

    def _ended(self, error: EngineBrokenError) -> RoomLostError:
        """End this process, so that another one takes its place and does what is asked of it."""
        logger.error("engine-%d ends its process: %s", self._number, error)
        end_process()
        return RoomLostError(f"engine-{self._number}", cause=str(error))

    def _over(self) -> RoomLostError:
        """Return why a session is over."""
        room = f"engine-{self._number}"
        if self._is_poisoned:
            return RoomWaitsError(room, cause="new weights did not reach it whole")
        return RoomLostError(room, cause="it was started anew")

    def _poison(self) -> None:
        self._is_loaded, self._is_poisoned = False, True
        self._serves.clear()
        self.open("")

    @cached_property
    def _weight_receiver(self) -> WeightReceiver:
        from trinity.runtime.ray.weight_transfer import WeightReceiver  # brings torch

        return WeightReceiver()


def end_process() -> None:
    """End this process at once, as if it had died; its log keeps what was said."""
    logging.shutdown()
    os._exit(1)
