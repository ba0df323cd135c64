"""The Ray of a run: joined where there is one, else started, and left as it was found.

=================================  ================================================================
``ray.init()`` was called before   use it, touch nothing
``RAY_ADDRESS=host:port``          join
``cluster.ray_address: host:port`` join
``auto``, and ``ray start`` ran    join
``auto``                           start one: loopback, a token, no dashboard; stop it at the end
=================================  ================================================================

One process that wants tokens in a cluster that has none refuses the cluster's own calls: Ray takes
it for dead, and cancels its workers before they start. So a run asks whether there are tokens, and
does as the cluster does, whatever token lies in the home directory.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trinity.common.memory import memory
from trinity.errors import TrinityError
from trinity.runtime.environment import environment
from trinity.runtime.ray.address import cluster_address, ray_settings
from trinity.runtime.ray.orphans import ended_with_driver
from trinity.runtime.ray.ray_processes import (
    end_unfinished,
    is_ray_lost,
    started_nodes,
    stopped_processes,
    watched_ray,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from trinity.common.config import Config
    from trinity.runtime.ray.ray_processes import RayWatch
    from trinity.runtime.ray.worker import WorkerFacts

ANSWER_TIMEOUT_S = 10.0

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_SET_TOKEN = (
    "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token; "
    "on its head, ray get-auth-token prints it. With RAY_ADDRESS=local the run starts its own Ray."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadNode:
    """A cluster that a run joins."""

    address: str  # host:port
    asks_for_token: bool
    is_here: bool  # all of its nodes have the loopback's address


def head_at(address: str) -> HeadNode:
    """Return what the head that listens there says of itself.

    Args:
        address: host:port.

    Raises:
        TrinityError: it is no Ray, or has tokens where this process has none or the reverse.
    """
    mode = os.environ.get("RAY_AUTH_MODE")
    with native_lines() as native:
        try:
            asks, nodes = _asked(address, may_show_token=mode in {None, "token"})
        except Exception as error:
            raise TrinityError(explained(error, address, native=native())) from error
    if mode == "token" and not asks:
        raise TrinityError(
            f"the Ray cluster at {address} asks for no token, and RAY_AUTH_MODE=token is set here, "
            "which would refuse its calls. Unset RAY_AUTH_MODE, or start the cluster with "
            "RAY_AUTH_MODE=token."
        )
    return HeadNode(address=address, asks_for_token=asks, is_here=nodes <= _LOOPBACK)


def _asked(address: str, *, may_show_token: bool) -> tuple[bool, set[str]]:
    """Return whether the head asks for a token, and the addresses of its nodes."""
    try:
        return False, _nodes(address, mode="disabled")
    except Exception as error:
        if not _is_about_token(str(error)) or not may_show_token or not _has_token():
            raise
    return True, _nodes(address, mode="token")


def _nodes(address: str, *, mode: str) -> set[str]:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    with _speaking(mode):
        nodes = GcsClient(address=address).get_all_node_info(timeout=ANSWER_TIMEOUT_S)
        return {node.node_manager_address for node in nodes.values()}


@contextmanager
def _speaking(mode: str) -> Iterator[None]:
    try:
        with environment({"RAY_AUTH_MODE": mode}):
            read_settings_again()
            yield
    finally:
        read_settings_again()


def _has_token() -> bool:
    """Return whether this process has a token; Ray's C++ aborts where it is to show none."""
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    return bool(AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True))


def _is_about_token(text: str) -> bool:
    return "authentication" in text.lower() or "authtoken" in text.lower()


def explained(error: Exception, address: str, *, native: str, stopped: str = "") -> str:
    """Return what went wrong between us and Ray, and what to do.

    Args:
        error: what Ray raised.
        address: of the cluster; empty: it was to be our own.
        native: what Ray's C++ wrote meanwhile, which knows more.
        stopped: the process of Ray that somebody stopped meanwhile, and how.
    """
    text = " ".join(str(error).split())
    known = f"{text} {error.__cause__} {native}"
    where = f"the Ray cluster at {address} cannot be joined" if address else "Ray cannot be started"
    if stopped:
        text = f"{stopped} while it started"
        remedy = "See who stopped it (ray stop, kill, a time limit); then run the command again."
    elif "mismatch" in known.lower():
        remedy = (
            "Run with the Python and the Ray that the cluster was started with, or restart the "
            "cluster with these."
        )
    elif _is_about_token(known):
        text = "the cluster asks for a token, and the one here is another or none"
        remedy = _SET_TOKEN
    elif address:
        remedy = (
            "See on its head whether it is alive: ray status. With RAY_ADDRESS=local the run "
            "starts its own Ray."
        )
    else:
        remedy = (
            "Free memory or space in the temporary folder, or run with --local, which needs no Ray."
        )
    return f"{where}: {text.rstrip('.')}. {remedy}"


@contextmanager
def native_lines() -> Iterator[Callable[[], str]]:
    """Keep what Ray's C++ writes on stderr while it connects; gives what reads it."""
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield lambda: _text(kept)
        finally:
            os.dup2(before, 2)
            os.close(before)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def read_settings_again() -> None:
    """Let a Ray that was imported before read the environment as it is now."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
    except ImportError:  # a Ray without tokens
        return
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


logger = logging.getLogger(__name__)

MAX_CPUS = 4  # so many processes Ray starts at once, for the first workers
MIN_STORE_BYTES = 256 << 20
MAX_STORE_SHARE = 0.3  # of the memory: Ray's own default
NUM_COPIES_OF_WEIGHTS = 6  # float32 of bfloat16 files, the snapshot in use and the next, spare


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The Ray that the workers of a run live in."""

    address: str  # of its head, host:port
    namespace: str  # how the namespaces of this run begin
    is_own: bool  # True: this run started it, and stops it
    seconds: float  # until it was there

    @property
    def line(self) -> str:
        """Return the line of the run's header."""
        if self.is_own:
            return f"started Ray on this machine in {self.seconds:.1f} s"
        return f"joined the Ray cluster at {self.address}"


@contextmanager
def cluster(config: Config, *, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Give the run its Ray, and say in one line which.

    Args:
        config: of the run: ``cluster.ray_address``, and the model, for the object store's size.
        say: is given the line.

    Raises:
        TrinityError: the cluster cannot be joined, or none can be started.
    """
    import ray

    if ray.is_initialized():
        began = time.perf_counter()
        found_here = _as_found(is_joined=True, began=began, say=say)
        with _quiet_raylet(), _watched(is_own=False, say=say), found_here as found:
            yield found
        return
    began, address = time.perf_counter(), cluster_address(config, say=say)
    head = head_at(address) if address else None
    loopback = _loopback_only(is_wanted=head is None or head.is_here)
    own = nullcontext({}) if address else ended_with_driver()
    with _quiet_raylet(), own as mark, environment({**ray_settings(head), **mark}), loopback:
        _init(address, config)
        with _watched(is_own=not address, say=say) as watch:
            try:
                with _as_found(is_joined=bool(address), began=began, say=say) as found:
                    yield found
            finally:
                watch.leave()
                ray.shutdown()


def startup_line(found: Cluster, workers: Sequence[WorkerFacts], *, seconds: float) -> str:
    """Return where the time before the first task went, and log it worker by worker.

    Args:
        found: the Ray.
        workers: of the stage; they start side by side.
        seconds: from the first worker's start until all were built.
    """
    for worker in workers:
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in worker.seconds.items())
        logger.info(
            "%s started: node %s, process %d, %s", worker.name, worker.host, worker.pid, parts
        )
    each = "".join(f", {worker.name} {sum(worker.seconds.values()):.1f}" for worker in workers)
    return f"started in {found.seconds + seconds:.1f} s: ray {found.seconds:.1f}{each}"


@contextmanager
def _as_found(*, is_joined: bool, began: float, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Give the description of the connected cluster; at the end, no worker is left in it."""
    import ray

    found = Cluster(
        address=ray.get_runtime_context().gcs_address,
        namespace=f"trinity-{secrets.token_hex(4)}",
        is_own=not is_joined,
        seconds=time.perf_counter() - began,
    )
    say(found.line)
    try:
        yield found
    finally:
        if not is_ray_lost():
            _end_workers(found.namespace)


def _watched(*, is_own: bool, say: Callable[[str], None]) -> AbstractContextManager[RayWatch]:
    """Look after the connected Ray, also while it is left: that may not come back either."""
    import ray

    return watched_ray(ray.get_runtime_context().gcs_address, is_own=is_own, say=say)


def _end_workers(namespace: str) -> None:
    """Kill the run's own actors that are still there, and nobody else's; free their places."""
    import ray
    from ray.exceptions import RayError
    from ray.util import list_named_actors

    from trinity.runtime.ray.placement import remove_groups

    if not ray.is_initialized():
        return
    try:
        for actor in list_named_actors(all_namespaces=True):
            if actor["namespace"].startswith(namespace):
                with suppress(ValueError):  # it ended a moment ago
                    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))
        remove_groups(namespace)
    except RayError as error:  # the whole cluster is gone
        logger.info("nothing is left to end: %s", " ".join(str(error).split()))


def _init(address: str, config: Config) -> None:
    """Connect this process, without Ray's lines on the terminal or its signal handlers.

    From then on Ray connects it to nothing by itself: a thread of the run that calls it a moment
    after the end (a workflow's, an operator's) would start another Ray, which stays.
    """
    import ray
    from ray._private import auto_init_hook

    auto_init_hook.enable_auto_connect = False
    read_settings_again()
    with _own_signal_handlers(), native_lines() as native, started_nodes() as nodes:
        try:
            if address:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
                return
            with _without_helpers():
                ray.init(
                    "local",
                    num_cpus=min(MAX_CPUS, num_workers(config)),
                    include_dashboard=False,
                    object_store_memory=_store_bytes(config),
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except BaseException as error:
            stopped = stopped_processes(nodes)
            end_unfinished(nodes)  # after a Ctrl-C too: a notebook may start another
            if not isinstance(error, Exception):
                raise
            line = explained(error, address, native=native(), stopped=stopped)
            raise TrinityError(line) from error


@contextmanager
def _without_helpers() -> Iterator[None]:
    """Start none of the processes that serve a dashboard, an autoscaler and forwarded logs.

    Each of them is a Python that imports much of Ray, and none has anything to do for a run.
    """
    from ray._private.node import Node

    names = ("start_api_server", "start_log_monitor", "start_monitor")
    before = {name: getattr(Node, name) for name in names if hasattr(Node, name)}
    for name in before:
        setattr(Node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(Node, name, method)


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep the handlers that Ray replaces; outside the main thread it replaces none.

    Its own one of SIGTERM would end the process with code 1, and say nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from ray._private import utils

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replace, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda _handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = replace
        for number, handler in before.items():
            signal.signal(number, handler)


def num_workers(config: Config) -> int:
    """Return how many processes the stage has beside the driver: Ray starts no others."""
    explores = config.mode in {"both", "explore", "bench"}
    num_engines = max(1, config.explorer.rollout_model.engine_num) if explores else 0
    return 2 * num_engines + (config.trainer.num_ranks or 1) * config.has_trainer


def _store_bytes(config: Config) -> int:
    """Return the bound of the object store: for the weights of this model, and batches."""
    found = memory("limit")  # of the machine, or of its container
    most = found.limit if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = int(most * MAX_STORE_SHARE)
    folder = Path(config.model.model_path).expanduser()
    if not folder.is_dir():
        return limit
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    weights = sum(file.stat().st_size for file in files)
    return min(limit, MIN_STORE_BYTES + NUM_COPIES_OF_WEIGHTS * weights)


@contextmanager
def _loopback_only(*, is_wanted: bool) -> Iterator[None]:
    """Let Ray call this machine 127.0.0.1, also where it was imported before."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not is_wanted
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _quiet_raylet() -> Iterator[None]:
    """Keep the raylet's own lines off the terminal: a lost worker is told by who called it."""
    from ray._private import worker

    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before
