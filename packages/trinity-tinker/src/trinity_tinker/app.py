"""The routes of the protocol, below ``/api/v1``."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.routing import Route, Router

from trinity_tinker.http import body_of, json_object, json_response, parsed_object
from trinity_tinker.management import Management
from trinity_tinker.refusal import Refused, RequestError
from trinity_tinker.wire import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from trinity_tinker.service import Service
    from trinity_tinker.store import Result

    Answer = Callable[[Http, str], Awaitable[Response]]

__all__ = ["build_app"]

logger = logging.getLogger("trinity.tinker")

PREFIX = "/api/v1"
_LOCAL = "local"  # the owner of what is made with the key that this server invented


def build_app(service: Service, *, keys: Iterable[str], own_key: str = "") -> Router:
    """Return the application that a server runs.

    Args:
        service: what its routes share.
        keys: of clients; each sees what it made.
        own_key: one more, which is another at each start and sees the same objects.
    """
    owners = {key: hashlib.sha256(key.encode()).hexdigest()[:16] for key in keys}
    if own_key:
        owners[own_key] = _LOCAL
    routes = _Routes(service)

    def route(method: str, path: str, answer: Answer) -> Route:
        return Route(PREFIX + path, _guarded(answer, owners), methods=[method])

    management = Management(service)
    return Router(
        [
            Route(PREFIX + "/healthz", _healthz, methods=["GET"]),
            *(route("POST", path, answer) for path, answer in routes.posts.items()),
            route("GET", "/get_server_capabilities", routes.capabilities),
            *(route(*one) for one in management.routes()),
            Route(PREFIX + "/files/{token}/{path:path}", management.file, methods=["GET"]),
        ],
        redirect_slashes=False,
        default=_unknown,
    )


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    text = f"there is no {scope.get('method')} {scope.get('path')} here."
    await json_response({"detail": text}, status=404)(scope, receive, send)


async def _healthz(http: Http) -> Response:
    del http
    return json_response({"status": "ok"})


def _guarded(answer: Answer, owners: dict[str, str]) -> Callable[[Http], Awaitable[Response]]:
    """Return a route that asks for a key, and tells what goes wrong as clients know it."""

    async def guarded(http: Http) -> Response:
        owner = owners.get(http.headers.get("x-api-key", ""))
        if owner is None:
            text = "the key is missing or unknown; set TINKER_API_KEY to the one that was printed."
            return json_response({"detail": text}, status=401)
        try:
            return await answer(http, owner)
        except RequestError as error:
            return json_response({"detail": str(error)}, status=error.status)
        except Refused as refused:
            return json_response({"detail": str(refused)}, status=422)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # the boundary to HTTP: logged, and answered with 500
            logger.exception("%s failed", http.url.path)
            return json_response({"detail": "the server failed; its log says why."}, status=500)

    return guarded


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.posts: dict[str, Answer] = {
            "/client/config": self._client_config,
            "/create_session": self._create_session,
            "/session_heartbeat": self._heartbeat,
            "/sessions/{session}/finish": self._finish,
            "/telemetry": self._telemetry,
            "/create_model": self._create_model,
            "/forward_backward": self._forward_backward,
            "/optim_step": self._for_model("optim_step"),
            "/save_weights": self._for_model("save_weights"),
            "/save_weights_for_sampler": self._for_model("save_weights_for_sampler"),
            "/save_weights_external": self._for_model("save_weights_external"),
            "/load_weights": self._load_weights,
            "/get_info": self._get_info,
            "/create_sampling_session": self._create_sampling,
            "/asample": self._sample,
            "/retrieve_future": self._retrieve,
        }

    async def capabilities(self, http: Http, owner: str) -> Response:
        del http, owner
        models = [
            {
                "model_name": base.name,
                "max_context_length": base.max_length,
                "trainable": True,
                "sampleable": True,
            }
            for base in self._service.bases.values()
        ]
        return json_response({"supported_models": models})

    async def _client_config(self, http: Http, owner: str) -> Response:
        del http, owner
        return json_response(
            {
                "pjwt_auth_enabled": False,
                "parallel_fwdbwd_chunks": False,
                "proto_compress_fwdbwd": True,
                "custom_loss_server_side": False,
                "sample_join_sampling_session": True,
            }
        )

    async def _create_session(self, http: Http, owner: str) -> Response:
        call = http.headers.get("x-idempotency-key", "")
        name = self._service.sessions.create(await body_of(http), owner=owner, call=call)
        return json_response({"session_id": name, "type": "create_session"})

    async def _heartbeat(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        self._service.sessions.note_seen(str(body.get("session_id")), owner=owner)
        return json_response({"type": "session_heartbeat"})

    async def _finish(self, http: Http, owner: str) -> Response:
        raw = await body_of(http)
        self._service.sessions.note_finished(raw, session=http.path_params["session"], owner=owner)
        return json_response({})

    async def _telemetry(self, http: Http, owner: str) -> Response:
        del owner
        await body_of(http)  # read, and kept nowhere
        return json_response({"status": "accepted"})

    async def _create_model(self, http: Http, owner: str) -> Response:
        raw = await body_of(http)
        name = self._service.create_model(raw, owner=owner, kind="create_model")
        return json_response({"request_id": name})

    async def _load_weights(self, http: Http, owner: str) -> Response:
        raw = await body_of(http)
        body = parsed_object(raw)
        if body.get("model_id") is not None:
            return self._added(raw, body, owner=owner, kind="load_weights")
        name = self._service.create_model(raw, owner=owner, kind="load_weights")
        return json_response({"request_id": name})

    async def _forward_backward(self, http: Http, owner: str) -> Response:
        raw = await body_of(http)
        request = message("ForwardBackwardRequest")
        try:
            request.ParseFromString(raw)
        except Exception as error:  # DecodeError, whose place differs between versions
            raise RequestError(422, f"the body is no ForwardBackwardRequest: {error}.") from error
        name = self._service.add_to_model(
            raw,
            owner=owner,
            model=request.model_id,
            seq=request.seq_id,
            kind="forward_backward",
        )
        return json_response({"request_id": name})

    def _for_model(self, kind: str) -> Answer:
        async def answer(http: Http, owner: str) -> Response:
            raw = await body_of(http)
            return self._added(raw, parsed_object(raw), owner=owner, kind=kind)

        return answer

    def _added(self, raw: bytes, body: Any, *, owner: str, kind: str) -> Response:
        model, seq = str(body.get("model_id")), body.get("seq_id")
        name = self._service.add_to_model(raw, owner=owner, model=model, seq=seq, kind=kind)
        return json_response({"request_id": name, "model_id": model})

    async def _get_info(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        model = self._service.store.owned("models", str(body.get("model_id")), owner=owner)
        if model["base"] not in self._service.bases:
            raise RequestError(404, f"the model {model['id']!r} was not made, or its base is gone.")
        base = self._service.bases[model["base"]]
        return json_response(
            {
                "type": "get_info",
                "model_id": model["id"],
                "model_data": {
                    "arch": base.architecture,
                    "model_name": base.name,
                    "tokenizer_id": base.name,
                },
                "model_name": base.name,
                "is_lora": True,
                "lora_rank": json.loads(model["adapter"])["rank"],
            }
        )

    async def _create_sampling(self, http: Http, owner: str) -> Response:
        name = self._service.create_sampling(await body_of(http), owner=owner)
        return json_response(
            {
                "sampling_session_id": name,
                "type": "create_sampling_session",
            }
        )

    async def _sample(self, http: Http, owner: str) -> Response:
        name, count = self._service.add_sample(await body_of(http), owner=owner)
        sequences = [f"{name}-{number}" for number in range(count)]
        return json_response({"request_id": name, "sample_sequence_ids": sequences})

    async def _retrieve(self, http: Http, owner: str) -> Response:
        body = await json_object(http)
        name = str(body.get("request_id"))
        result = await self._service.result(name, owner=owner)
        if result is None:
            return json_response(_try_again(name, self._service.waits_for(name)))
        return _finished(result)


def _try_again(name: str, reason: str) -> dict[str, str]:
    """Return the answer to a poll without a result; clients print the reason of a pause."""
    answer = {"type": "try_again", "request_id": name, "queue_state": "active"}
    pause = {"queue_state": "paused_capacity", "queue_state_reason": reason}
    return answer | pause if reason else answer


def _finished(result: Result) -> Response:
    kind = "application/x-protobuf" if result.form == "proto" else "application/json"
    return Response(result.body, media_type=kind)
