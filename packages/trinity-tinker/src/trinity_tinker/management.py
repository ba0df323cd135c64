"""The routes by which clients look at what they made, and change or delete it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trinity_tinker.http import json_object, json_response
from trinity_tinker.refusal import RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request as Http
    from starlette.responses import Response

    from trinity_tinker.service import Service

    Answer = Callable[[Http, str], Awaitable[Response]]

__all__ = ["management_routes"]


def management_routes(service: Service) -> list[tuple[str, str, Answer]]:
    """Return method, path and answer of each route."""
    routes = _Management(service)
    return [
        ("GET", "/samplers/{sampler}", routes.sampler),
        ("POST", "/weights_info", routes.weights_info),
    ]


class _Management:
    def __init__(self, service: Service) -> None:
        self._store = service.store

    async def sampler(self, http: Http, owner: str) -> Response:
        row = self._store.owned("samplings", http.path_params["sampler"], owner=owner)
        return json_response(
            {
                "sampler_id": row["id"],
                "base_model": row["base"],
                "model_path": row["path"],
            }
        )

    async def weights_info(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        if body.get("weights_access_token"):
            raise RequestError(422, "weights_access_token is not known here.")
        path = str(body.get("tinker_path"))
        row = self._store.owned("checkpoints", path, owner=owner)
        adapter = json.loads(row["adapter"])
        switches = {name: adapter[name] for name in ("train_unembed", "train_mlp", "train_attn")}
        return json_response(
            {
                "base_model": row["base"],
                "is_lora": True,
                "lora_rank": adapter["rank"],
                **switches,
            }
        )
