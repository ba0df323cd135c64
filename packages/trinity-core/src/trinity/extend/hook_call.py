"""Call one hook of all plugins: what goes wrong in one, and what registers inside, is its own."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from trinity.extend.failure import described_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pluggy import HookImpl

    from trinity.extend.record import PluginRecord

_owner: ContextVar[str | None] = ContextVar("trinity_plugin_being_loaded", default=None)


@contextmanager
def loading_as(owner: str) -> Iterator[None]:
    """Make every decorator that runs inside register for the plugin whose key is ``owner``."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def current_owner() -> str | None:
    """Return the key of the plugin that is being loaded; None: nobody's, so the user's."""
    return _owner.get()


class HookCaller:
    """Calls one hook of the plugins in use, one plugin after the other.

    Args:
        hook: its name.
        plugins: those that implement it, each with its implementations.
        tell: is given the line of a plugin that raised, and raises itself where that ends all.
        check: raises where a hook that is asked for data returned something else; None: this one
            is asked for none.
    """

    def __init__(
        self,
        hook: str,
        plugins: Sequence[tuple[PluginRecord, Sequence[HookImpl]]],
        *,
        tell: Callable[[str], None],
        check: Callable[[str, object], None] | None = None,
    ) -> None:
        self._hook, self._plugins, self._tell, self._check = hook, plugins, tell, check

    def __call__(self, **arguments: Any) -> list[tuple[PluginRecord, Any]]:
        """Return what each implementation returns; what a plugin that raised gave is left out."""
        results = []
        for record, implementations in self._plugins:
            try:
                given = [self._given(one, arguments) for one in implementations]
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- around one plugin
                self._tell(
                    f"hook {self._hook} of plugin {record.label} failed: "
                    f"{described_failure(error)}. Leave it out with -P no:{record.name}, or report "
                    f"it to its authors."
                )
            else:
                results += [(record, one) for one in given]
        return results

    def _given(self, implementation: HookImpl, arguments: Mapping[str, Any]) -> Any:
        with loading_as(implementation.plugin_name):
            given = implementation.function(*(arguments[name] for name in implementation.argnames))
        if self._check is not None:
            self._check(self._hook, given)
        return given
