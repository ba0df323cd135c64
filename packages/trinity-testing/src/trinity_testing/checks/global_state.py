"""What torch, numpy and the interpreter hold for all code at once."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["GENERATORS", "SETTINGS", "Generator", "Setting", "settings_now", "threads_pretended"]


@dataclass(frozen=True)
class Setting:
    """One thing that is the same for everybody, and how to put it back."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


@dataclass(frozen=True)
class Generator:
    """A generator of random numbers that everybody draws from."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    seed: Callable[[int], object]


def _set_deterministic(value: tuple[bool, bool]) -> None:
    is_on, only_warns = value
    torch.use_deterministic_algorithms(is_on, warn_only=only_warns)


SETTINGS: Mapping[str, Setting] = {
    "torch's default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": Setting(torch.get_default_device, torch.set_default_device),
    "torch's grad mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's deterministic algorithms": Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    "torch's number of threads": Setting(
        lambda: torch.get_num_threads(),  # noqa: PLW0108 -- looked up late: threads_pretended
        lambda value: torch.set_num_threads(value),  # noqa: PLW0108
    ),
    "torch's anomaly detection": Setting(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly
    ),
    "torch's precision of products": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "what numpy does about NaN and overflow": Setting(np.geterr, lambda value: np.seterr(**value)),
    "the working directory": Setting(os.getcwd, os.chdir),
    "the recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "the default timeout of sockets": Setting(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "what Ctrl-C does": Setting(
        lambda: signal.getsignal(signal.SIGINT),
        lambda value: signal.signal(signal.SIGINT, value),
    ),
}
GENERATORS: Mapping[str, Generator] = {
    "torch": Generator(
        lambda: torch.get_rng_state().numpy().tobytes(),
        lambda value: torch.set_rng_state(torch.frombuffer(bytearray(value), dtype=torch.uint8)),
        torch.manual_seed,
    ),
    "numpy": Generator(
        lambda: pickle.dumps(np.random.get_state()),
        lambda value: np.random.set_state(pickle.loads(value)),
        np.random.seed,
    ),
    "random": Generator(random.getstate, random.setstate, random.seed),
}


def settings_now() -> dict[str, Any]:
    """Return each setting's value, by its name."""
    return {name: setting.read() for name, setting in SETTINGS.items()}


@contextlib.contextmanager
def threads_pretended(number: int) -> Iterator[None]:
    """Let torch say inside that it has so many threads, and take another number without using it.

    The process of a check is forked, and torch's threads do not come along: with more than one, its
    first operation on a large tensor waits for them for ever, whoever set them.
    """
    real, told = torch.get_num_threads, [number]
    unchanged = real()

    def read() -> int:
        return told[-1] if real() == unchanged else real()

    with (
        mock.patch.object(torch, "get_num_threads", read),
        mock.patch.object(torch, "set_num_threads", told.append),
    ):
        yield
