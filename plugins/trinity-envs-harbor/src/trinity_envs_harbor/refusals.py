"""What a task asks for and no sandbox gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["notes_of", "refusals_of"]

_HARBOR = "Run this task with Harbor itself"


def refusals_of(
    given: Mapping[str, Any], folder: Path, *, in_container: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield what is not given: a dotted key, and why."""
    yield from _of_environment(given.get("environment") or {}, folder)
    yield from _of_verifier(given.get("verifier") or {}, folder)
    if given.get("healthcheck"):
        yield "healthcheck", f"healthcheck is not provided. {_HARBOR}."
    if (folder / "trajectory.json").exists():
        yield "steps", "trajectory.json: no agent is given an earlier conversation. Remove it."
    users = {str((given.get(one) or {}).get("user") or "root") for one in ("agent", "verifier")}
    if len(users) > 1 and not in_container:
        told = "bwrap has one user: use sandbox: container, or remove both."
        yield "agent.user", f"agent.user and verifier.user differ. {told}"


def _of_environment(environment: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / "environment" / name).exists():
            yield "environment", f"environment/{name}: services beside the task. {_HARBOR}."
    for name in ("gpus", "tpu", "mcp_servers", "skills_dir", "healthcheck", "allowed_hosts"):
        if environment.get(name):
            yield f"environment.{name}", f"environment.{name} is not provided. {_HARBOR}."
    if str(environment.get("os") or "linux").lower() != "linux":
        yield "environment.os", f"environment.os is {environment['os']!r}. Sandboxes are of Linux."
    if environment.get("network_mode") == "allowlist":
        yield "environment.network_mode", "a list of allowed hosts is not provided; use none."


def _of_verifier(verifier: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    if verifier.get("environment_mode", "shared") not in ("shared", "separate"):
        told = f"it is {verifier['environment_mode']!r}. Say shared or separate."
        yield "verifier.environment_mode", f"verifier.environment_mode: {told}"
    for name in ("environment", "collect"):
        if verifier.get(name):
            told = "A separate verifier gets a new copy of the task's environment."
            yield f"verifier.{name}", f"verifier.{name} is not followed. {told}"
    if (folder / "tests" / "Dockerfile").exists():
        yield "verifier", f"tests/Dockerfile: the verifier has an image of its own. {_HARBOR}."


def notes_of(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is done otherwise than Harbor does: a dotted key, and how."""
    environment = given.get("environment") or {}
    mode = environment.get("network_mode")
    asks = mode == "public" or environment.get("allow_internet") is True
    if asks:
        key = "environment.network_mode" if mode else "environment.allow_internet"
        yield key, "the task asks for the network, and a sandbox has none."
    if str((given.get("agent") or {}).get("user") or "root") not in {"root", "0"}:
        yield "agent.user", "the one user of a sandbox has no name; agent.user has no effect."
