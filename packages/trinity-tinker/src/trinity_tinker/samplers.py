"""What is sampled: base models, each with the adapters of checkpoints, one for each row."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from trinity.engines.model import twin_of
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError

from trinity_tinker.checkpoints import has_versions, without_version
from trinity_tinker.multi_lora import Factors, MultiLoRA, read_factors
from trinity_tinker.prompt_scores import Scores, scores_of
from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from trinity.common.ports import Completion, GenerationRequest

    from trinity_tinker.base_model import BaseModel

__all__ = ["Sampler", "Samplers"]

_SEED = 0  # of an engine; each request has a key of its own


class _Sampled:
    """A base model with adapters by name, and the engine that samples all of them in one batch."""

    def __init__(self, base: BaseModel) -> None:
        self.base = base
        self.adapters = MultiLoRA()
        #: To score with, under the lock; the engine works on the same tensors.
        self.module = self.adapters.put_into(twin_of(base.module))
        self.lock = threading.Lock()
        self.engine = TransformersEngine(
            model_path=base.path,
            max_model_len=base.max_length,
            seed=_SEED,
            in_lockstep=False,
            module=self.module,
            adapters=self.adapters,
        )


@dataclass(kw_only=True, eq=False)
class Sampler:
    """The weights that requests name: a base model, or one with the adapter of a checkpoint."""

    sampled: _Sampled
    adapter: str = ""
    made: float = 0.0  # when the adapter's files were written
    num_users: int = 0  # requests that are being answered
    is_gone: bool = False  # the next to have no user lets go of the adapter

    @property
    def base(self) -> BaseModel:
        """Return the model, without what is added to it."""
        return self.sampled.base

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request."""
        return self.sampled.engine.submit(replace(request, adapter=self.adapter))

    def scores_of(self, text: Sequence[int], *, last: int, **wanted: Any) -> Scores:
        """Return what the model says about the last tokens; ``wanted``: see :func:`scores_of`."""
        with self.sampled.lock, self.sampled.adapters.of_rows([self.adapter]):
            return scores_of(self.sampled.module, text, last=last, **wanted)


class Samplers:
    """All that is sampled; thread-safe. Each sampler that is given is released later.

    Args:
        max_adapters: adapters in memory; the one used longest ago makes room, once nothing is
            being sampled from it.
    """

    def __init__(self, *, max_adapters: int) -> None:
        self._max_adapters = max_adapters
        self._bases: dict[str, Sampler] = {}
        # by folder; the last is the one used last
        self._adapted: dict[Path, Sampler] = {}
        self._num_made = 0
        self._lock = threading.Lock()  # held while files are read
        self._counting = threading.Lock()  # of the users alone: a reply ends without waiting

    def of_base(self, base: BaseModel) -> Sampler:
        """Return the sampler of a model without an adapter."""
        with self._lock:
            return self._used(self._of_base(base))

    def of_checkpoint(self, folder: Path, base: BaseModel, *, made: float) -> Sampler:
        """Return the sampler of a checkpoint; all who sample one with versions get the newest.

        ``made`` tells its files from those that were in its folder before.

        Raises:
            Refused: the files are gone, or cannot be read.
        """
        key, is_mutable = without_version(folder), has_versions(folder)
        with self._lock:
            found = self._adapted.get(key)
            if found is not None and is_mutable and found.made < made:
                self._renew(found, folder, made=made)
            elif found is not None and not is_mutable and found.made != made:
                self._let_go(self._adapted.pop(key))
                found = None
            if found is None:
                self._make_room()
                found = self._loaded(folder, base, made=made)
            self._adapted.pop(key, None)
            self._adapted[key] = found
            return self._used(found)

    def publish(self, folder: Path, *, made: float) -> None:
        """Let those who sample earlier versions of a checkpoint, if any do, go on with this one."""
        key = without_version(folder)
        with self._lock:
            found = self._adapted.get(key)
            if found is None or found.made >= made:
                return
            try:
                self._renew(found, folder, made=made)
            except (Refused, ModelError):  # the next request is told; what is under way ends
                self._let_go(self._adapted.pop(key))

    def release(self, sampler: Sampler) -> None:
        """Note that a request no longer needs a sampler."""
        with self._counting:
            sampler.num_users -= 1
            if sampler.is_gone and not sampler.num_users:
                sampler.sampled.adapters.remove(sampler.adapter)

    def forget(self, folder: Path) -> None:
        """Let go of a checkpoint whose files are other ones now, or are gone."""
        with self._lock:
            found = self._adapted.pop(without_version(folder), None)
            if found is not None:
                self._let_go(found)

    def close(self) -> None:
        """End all engines."""
        with self._lock:
            for sampler in self._bases.values():
                sampler.sampled.engine.close()

    def _of_base(self, base: BaseModel) -> Sampler:
        if base.name not in self._bases:
            self._bases[base.name] = Sampler(sampled=_Sampled(base))
        return self._bases[base.name]

    def _loaded(self, folder: Path, base: BaseModel, *, made: float) -> Sampler:
        sampled, factors = self._of_base(base).sampled, _read(folder, base)
        self._num_made += 1
        name = f"{self._num_made}:{folder}"  # a later one from this folder is another
        sampled.adapters.add(name, factors)
        return Sampler(sampled=sampled, adapter=name, made=made)

    def _renew(self, sampler: Sampler, folder: Path, *, made: float) -> None:
        sampler.sampled.adapters.add(sampler.adapter, _read(folder, sampler.base))
        sampler.made = made

    def _make_room(self) -> None:
        idle = [key for key, sampler in self._adapted.items() if not sampler.num_users]
        for key in idle[: max(0, len(self._adapted) + 1 - self._max_adapters)]:
            self._let_go(self._adapted.pop(key))

    def _used(self, sampler: Sampler) -> Sampler:
        with self._counting:
            sampler.num_users += 1
        return sampler

    def _let_go(self, sampler: Sampler) -> None:
        with self._counting:
            sampler.is_gone = True
            if not sampler.num_users:
                sampler.sampled.adapters.remove(sampler.adapter)


def _read(folder: Path, base: BaseModel) -> Factors:
    try:
        return read_factors(folder, device=base.module.device)
    except (OSError, SafetensorError) as error:
        raise Refused(f"the checkpoint's files cannot be read: {error}") from error
