"""Where ``set_*`` and ``check_*`` functions of the configuration page are registered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

__all__ = ["CONFIG_GENERATORS", "ConfigEntry", "ConfigGenerators"]


@dataclass(kw_only=True)
class ConfigEntry:
    """One setting: how it is drawn, when, and what it begins with.

    Attributes:
        name: of the setting, the key of its value in ``st.session_state``.
        draw: the ``set_*`` function; it gets ``key=name``.
        default_value: of the key before anybody chose.
        visible: tells whether it is drawn now.
        other_configs: further keys of ``st.session_state`` with what they begin with.
        path: where its value stands in the YAML; None: a ``_gen_*`` method writes it.
        check: the ``check_*`` function; it gets ``unfinished_fields`` and ``key``.
    """

    name: str
    draw: Callable[..., Any]
    default_value: Any = None
    visible: Callable[[], Any] | None = None
    other_configs: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None
    check: Callable[..., Any] | None = None

    def is_visible(self) -> bool:
        """Return whether it is to be drawn now."""
        return self.visible is None or bool(self.visible())


class ConfigGenerators:
    """The settings that are registered, by name."""

    def __init__(self) -> None:
        self._entries: dict[str, ConfigEntry] = {}
        self._checks: dict[str, Callable[..., Any]] = {}

    def register_config(
        self,
        default_value: Any = None,
        visible: Callable[[], Any] | None = None,
        other_configs: Mapping[str, Any] | None = None,
        *,
        path: str | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that registers ``set_NAME`` as the setting NAME.

        Args:
            default_value: what the setting begins with.
            visible: called without arguments; the setting is drawn while it says so.
            other_configs: further keys of ``st.session_state`` and what they begin with.
            path: of the YAML, such as ``buffer.total_epochs``: the page reads and writes it there.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            name = _name_after("set_", function)
            before = self._entries.get(name)  # a function of a name that is there takes its place
            self._entries[name] = ConfigEntry(
                name=name,
                draw=function,
                default_value=default_value,
                visible=visible,
                other_configs=dict(other_configs or {}),
                path=path or (before.path if before is not None else None),
                check=self._checks.get(name),
            )
            return function

        return register

    def register_check(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that registers ``check_NAME`` for the setting NAME."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            name = _name_after("check_", function)
            self._checks[name] = function
            if name in self._entries:
                self._entries[name].check = function
            return function

        return register

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[ConfigEntry]:
        return iter(list(self._entries.values()))

    def get(self, name: str) -> ConfigEntry:
        """Return a setting.

        Raises:
            ConfigError: none is registered under the name.
        """
        if name not in self._entries:
            raise ConfigError(
                f"no setting is registered as {name!r}.{did_you_mean(name, self._entries)} "
                f"Register set_{name} with CONFIG_GENERATORS.register_config."
            )
        return self._entries[name]

    def get_config(self, name: str) -> Any:
        """Draw a setting, with its name as ``key``, and return what the function returns."""
        return self.get(name).draw(key=name)

    def get_check(self, name: str, unfinished_fields: set[str]) -> None:
        """Check a setting, if it has a check."""
        check = self.get(name).check
        if check is not None:
            check(unfinished_fields=unfinished_fields, key=name)

    def set_defaults(self, state: MutableMapping[Any, Any]) -> None:
        """Give each setting that has no value yet what it begins with."""
        for entry in self:
            for key, value in {entry.name: entry.default_value, **entry.other_configs}.items():
                if key not in state:
                    state[key] = value


def _name_after(prefix: str, function: Callable[..., Any]) -> str:
    name = function.__name__
    if not name.startswith(prefix) or name == prefix:
        raise ConfigError(
            f"{function.__module__}.{name} is registered as a setting of the page, and is not "
            f"named {prefix}NAME. Rename it: the rest of the name is the setting's."
        )
    return name.removeprefix(prefix)


CONFIG_GENERATORS = ConfigGenerators()
