"""An environment as a workflow acts in it: begun on a server, and each answer plain JSON.

workflow --reset, step--> recorded(...) --> Acting --> Session --websocket--> server
         <--answer: json----------------
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import EnvError

from trinity_envs_openenv.observation import Observation
from trinity_envs_openenv.schema import check_actions
from trinity_envs_openenv.server import served
from trinity_envs_openenv.session import RefusedError, Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity_envs_openenv.settings import OpenEnvSettings

__all__ = ["Acting", "observed"]

Answer = dict[str, Any]  # json: fields, reward and is_done of an observation, or refused: why


class Acting:
    """One episode in an environment of its own.

    Args:
        settings: of the workflow.
    """

    def __init__(self, settings: OpenEnvSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    @property
    def url(self) -> str:
        """Return where its server is; empty: it was never reset."""
        return "" if self._session is None else self._session.url

    def reset(self, arguments: Mapping[str, Any]) -> Answer:
        """Begin the episode.

        A killed server takes connections until the system has done away with it. Who came by then
        has done nothing yet, and begins in the server that follows it, once.

        Args:
            arguments: of the environment's reset.

        Raises:
            EnvError: no server answers, it has no room in time, or the reset failed.
        """
        settings = self._settings
        url = settings.url or served(settings.folder, app=settings.app)
        try:
            return self._reset_at(url, arguments)
        except EnvError:
            was_closed = self._session is None or self._session.is_closed
            self.close()
            if was_closed or not settings.folder:
                raise
            following = served(settings.folder, app=settings.app)
            if following == url:
                raise
        return self._reset_at(following, arguments)

    def step(self, action: Mapping[str, Any]) -> Answer:
        """Act; an action that is none of the environment's is answered with why.

        Raises:
            EnvError: the environment failed, hung or is gone.
        """
        if self._session is None:
            raise EnvError("the environment was never reset.")
        try:
            return _answer(self._session.step(action))
        except RefusedError as error:
            return {"refused": str(error)}

    def close(self) -> None:
        """Give the environment back; a step that hangs ends."""
        if self._session is not None:
            self._session.close()

    def _reset_at(self, url: str, arguments: Mapping[str, Any]) -> Answer:
        settings = self._settings
        if settings.action is not None:
            check_actions(settings.action, url=url)
        session = self._session = Session(url, timeout_s=settings.timeout_s)
        return _answer(session.reset(arguments, wait_s=settings.session_wait_s))


def observed(answer: Answer) -> Observation:
    """Return the observation of an answer.

    Raises:
        RefusedError: the environment takes no such action; the message says why.
    """
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    return Observation(**answer)


def _answer(observation: Observation) -> Answer:
    fields = dict(observation.fields)
    return {"fields": fields, "reward": observation.reward, "is_done": observation.is_done}
