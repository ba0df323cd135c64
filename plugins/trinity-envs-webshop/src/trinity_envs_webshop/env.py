"""The environment: text actions in, observations out, as published."""

from __future__ import annotations

import random
import re
import string
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ConfigError, DataError

from trinity_envs_webshop.session import Session

if TYPE_CHECKING:
    from trinity_envs_webshop.goal import Goal
    from trinity_envs_webshop.shop import Shop

__all__ = ["ObservationMode", "WebShopEnv", "parsed_action"]

ObservationMode = Literal["text", "text_rich", "url"]
_MODES = ("text", "text_rich", "url")
_ACTION = re.compile(r"(.+)\[(.+)\]")
_SEPARATOR = " [SEP] "


class WebShopEnv:
    """One customer at a time in a shop that many share; cheap to make.

    Args:
        shop: the shop.
        observation_mode: text, text_rich or url.
        num_prev_obs: how many earlier observations each state repeats.
        num_prev_actions: how many earlier actions each state repeats.
        rng: draws sessions' names and goals; None: goes on from where the shop's generator stopped,
            as the published environment does.

    Raises:
        ConfigError: there is no such mode.
    """

    def __init__(
        self,
        shop: Shop,
        *,
        observation_mode: ObservationMode = "text_rich",
        num_prev_obs: int = 0,
        num_prev_actions: int = 0,
        rng: random.Random | None = None,
    ) -> None:
        if observation_mode not in _MODES:
            raise ConfigError(
                f"observation_mode is {observation_mode!r}; it must be one of {', '.join(_MODES)}"
            )
        self.shop = shop
        self.observation_mode = observation_mode
        self.rng = rng or _generator_of(shop)
        self._num_prev_obs, self._num_prev_actions = num_prev_obs, num_prev_actions
        self._observations: deque[str] = deque(maxlen=num_prev_obs)
        self._actions: deque[str] = deque(maxlen=num_prev_actions)
        self._sessions: dict[str, Session] = {}
        self._session: Session | None = None
        if rng is None:
            self.reset()  # the published constructor draws a session too

    def reset(self, session: int | str | None = None) -> tuple[str, None]:
        """Go to the search page of a session and return what it shows.

        Args:
            session: an integer is the position of its goal; a string is only a name, its goal is
                drawn; None: a drawn name too. A session that is known keeps its goal.

        Raises:
            DataError: there is no goal at that position.
        """
        if session is None:
            name = "".join(self.rng.choices(string.ascii_lowercase, k=10))
        else:
            name = str(session)
        if name not in self._sessions:
            goal = self._goal_of(session)
            self._sessions[name] = Session(name, goal, self.shop, self.rng)
        self._session = self._sessions[name]
        self._session.start()
        observation = self.observation
        self._observations.clear()
        self._observations.append(observation)
        self._actions.clear()
        return observation, None

    def step(self, action: str) -> tuple[str, float, bool, None]:
        """Do what the action says; return the state, the reward and whether the session is over.

        What cannot be done leaves the page as it is.
        """
        reward, is_done = self._do(action)
        observation = self.observation
        self._actions.append(action)
        state = self._with_history(observation)
        self._observations.append(observation)
        return state, reward, is_done, None

    def get_available_actions(self) -> dict[str, Any]:
        """Return whether there is a search bar, and what can be clicked."""
        page = self.session.page
        return {"has_search_bar": page.has_search_bar, "clickables": list(page.clickables)}

    def close(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()
        self._session = None

    @property
    def session(self) -> Session:
        """Return the session that is played.

        Raises:
            RuntimeError: the environment is closed.
        """
        if self._session is None:
            raise RuntimeError("the environment is closed, or was never reset; call reset()")
        return self._session

    @property
    def session_name(self) -> str:
        """Return the name of the session that is played.

        Raises:
            RuntimeError: the environment is closed.
        """
        return self.session.name

    @property
    def tagger_name(self) -> str:
        """Return who found the words for goods in the goals."""
        return self.shop.tagger.name

    @property
    def goal(self) -> Goal:
        """Return what the customer wants."""
        return self.session.goal

    @property
    def instruction_text(self) -> str:
        """Return what the customer wants, in words."""
        return self.session.goal.instruction_text

    @property
    def reward_info(self) -> dict[str, Any] | None:
        """Return the parts of the reward; None: nothing was bought."""
        return self.session.reward_info

    @property
    def observation(self) -> str:
        """Return the page in the mode of the environment."""
        return self.observed(self.observation_mode)

    def observed(self, mode: ObservationMode) -> str:
        """Return the page in any mode."""
        session = self.session
        if mode == "url":
            return session.url
        if mode == "text":
            return session.page.text()
        return session.page.text_rich(url=session.url, visited=session.visited)

    def _do(self, action: str) -> tuple[float, bool]:
        name, argument = parsed_action(action)
        if name == "search" and argument:
            self.session.search(argument.split(" "))
            return 0.0, False
        if name == "click" and argument in self.session.page.clickables and argument != "search":
            return self.session.click(argument)
        return 0, False

    def _goal_of(self, session: int | str | None) -> Goal:
        goals = self.shop.goals
        index = session if isinstance(session, int) else goals.draw(self.rng)
        if not 0 <= index < len(goals):
            raise DataError(
                f"session {session} has no goal: there are {len(goals)}, 0 to {len(goals) - 1}. "
                f"Make the dataset anew with get_webshop_data.py, for these data and settings."
            )
        goal: Goal = goals[index]
        return goal

    def _with_history(self, observation: str) -> str:
        texts = [observation]
        for back in range(1, 1 + max(self._num_prev_obs, self._num_prev_actions)):
            if back <= len(self._actions):
                texts.append(self._actions[-back])
            if back <= len(self._observations):
                texts.append(self._observations[-back])
        return _SEPARATOR.join(reversed(texts))


def parsed_action(action: str) -> tuple[str, str | None]:
    """Return the name and the lower-cased argument of an action.

    >>> parsed_action("click[Buy Now]"), parsed_action("search[]")
    (('click', 'buy now'), ('search[]', None))
    """
    match = _ACTION.match(action)
    return (match[1], match[2].lower()) if match else (action, None)


def _generator_of(shop: Shop) -> random.Random:
    rng = random.Random()
    rng.setstate(shop.rng_state)
    return rng
