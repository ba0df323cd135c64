"""Do what clients ask of their runs: passes, steps, checkpoints; one request at a time.

A run is an adapter and an AdamW state in the trainer of its base model.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError

from trinity_tinker.datums import write_output
from trinity_tinker.fields import number, parsed
from trinity_tinker.refusal import Refused, RequestError
from trinity_tinker.run_states import REST_OF_BATCH
from trinity_tinker.store import Request, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.checkpoints import Checkpoints
    from trinity_tinker.run_states import RunStates
    from trinity_tinker.store import Store

__all__ = ["Training", "refusal_result"]

logger = logging.getLogger("trinity.tinker")

LORA = {"rank": int, "seed": None, "train_unembed": True, "train_mlp": True, "train_attn": True}
_ADAM = {
    "learning_rate": 1e-4,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-12,
    "weight_decay": 0.0,
    "grad_clip_norm": 0.0,
}
_INFLIGHT = "inflight"  # the checkpoint of a run that its inflight samplers share
_LONGEST_ERROR = 500  # characters that are kept of it
_SAVE = {"model_id": str, "seq_id": int, "path": None, "ttl_seconds": None, "user_metadata": None}


class Training:
    """The runs; for one thread at a time.

    Args:
        store: where requests and states are noted.
        checkpoints: where checkpoints are.
        states: the runs in memory.
        alpha: of the adapters, which the protocol does not name.
        publish: called with a path and its ``owner`` when the weights there are newer ones.
    """

    def __init__(
        self,
        store: Store,
        *,
        checkpoints: Checkpoints,
        states: RunStates,
        alpha: int,
        publish: Callable[..., None],
    ) -> None:
        self._store = store
        self._publish = publish
        self._checkpoints = checkpoints
        self.states = states
        self._alpha = alpha

    def run(self, request: Request) -> Result:
        """Do what is asked for, and note how it ended; nothing is raised."""
        try:
            return _STEPS[request.kind](self, request)  # which notes its result
        except (Refused, RequestError) as error:
            result = refusal_result(str(error))
        except Exception as error:  # the boundary to a client: logged, and told
            # What it did to the run in memory is in no journal: the next request loads the run.
            self.states.release(request.scope)
            if isinstance(error, TrinityError):
                result = refusal_result(str(error))
            else:
                logger.exception("%s %d of %s failed", request.kind, request.seq, request.scope)
                result = refusal_result(f"the server failed: {error!r}", category="server")
        self._fail(request, result)
        return result

    def give_up(self, request: Request, why: str) -> None:
        """Fail a request that is not retried, with the passes of its batch; before any other.

        It may be these passes, made again for it, that cannot be done.
        """
        with self._store.writing():
            has_rest = self.states.has_rest(request)
            if self.states.drop_batch(request.scope, before=request.seq):
                why += f" The passes since the last optim_step are dropped. {REST_OF_BATCH}"
            elif has_rest:
                why += f" {REST_OF_BATCH}"
            self._fail(request, refusal_result(why, category="server"))
            if has_rest:
                self.states.drop_rest(request)

    def drop_gradients(self, model: str) -> None:
        """Forget the passes since the last step of a run."""
        self._store.forget_gradients(model)
        self.states.release(model)

    def _fail(self, request: Request, result: Result) -> None:
        if request.seq == 0:
            self.states.release(request.scope)
            self._store.write("UPDATE models SET base = '' WHERE id = ?", request.scope)
        self._store.finish(request, result, keeps_body=False)

    def _body(self, request: Request, **known: Any) -> dict[str, Any]:
        """Return the fields of a request; ``known``: see :func:`parsed`."""
        return parsed(self._store.body_of(request.id), **known)

    def _create(self, request: Request) -> Result:
        body = self._body(
            request,
            session_id=str,
            model_seq_id=int,
            base_model=str,
            user_metadata=None,
            lora_config=dict,
            optimizer_config={"type": "adamw"},
        )
        _refuse_optimizer(body["optimizer_config"])
        base = self.states.base_named(body["base_model"])
        lora = parsed(json.dumps(body["lora_config"]).encode(), **LORA)
        if lora["seed"] is None:
            lora["seed"] = int(request.id[:7], 16)  # the same when it is made again
        lora["alpha"] = self._alpha  # of this run, whatever a later start of the server says
        base.adapter(lora)
        result = _json(
            {"model_id": request.scope, "type": "create_model"},
            {"base": base.name, "rank": lora["rank"]},
        )
        self._begin(request, base, lora, metadata=body["user_metadata"], result=result)
        return result

    def _begin(
        self,
        request: Request,
        base: BaseModel,
        lora: dict[str, Any],
        *,
        metadata: Any,
        result: Result,
        folder: str = "",
    ) -> None:
        """Note a run's beginning, and its result with it."""
        with self._store.writing():
            self._store.write(
                "UPDATE models SET base = ?, adapter = ?, metadata = ? WHERE id = ?",
                *(base.name, json.dumps(lora), json.dumps(metadata), request.scope),
            )
            self._store.note_state(request.scope, seq=request.seq, folder=folder)
            self._store.finish(request, result, keeps_body=False)

    def _forward_backward(self, request: Request) -> Result:
        _, base = self.states.ready(request)
        asked, logprobs, loss = self.states.backward(base, request)
        result = Result(
            form="proto",
            body=write_output(asked.targets, logprobs, loss=loss),
            summary=asked.summary() | {"loss": loss},
        )
        self._store.finish(request, result, keeps_body=not asked.forward_only)
        return result

    def _step(self, request: Request) -> Result:
        model, base = self.states.ready(request)
        body = self._body(
            request, model_id=str, seq_id=int, adam_params=None, optimizer_params=None
        )
        _refuse_optimizer(body["optimizer_params"] or {"type": "adamw"})
        sent = body["adam_params"] or {}
        given = parsed(json.dumps(sent).encode(), **_ADAM)
        for name in sent:
            if sent[name] is None:
                raise Refused(f"{name} is null, which the SDK sends for NaN and infinity.")
        adam = {name: number(given, name, least=0.0) for name in _ADAM}
        if not max(adam["beta1"], adam["beta2"]) < 1.0:
            raise Refused(f"beta1 and beta2 are {adam['beta1']} and {adam['beta2']}, not below 1.")
        norm = base.trainer.step(
            request.scope,
            max_norm=adam["grad_clip_norm"],
            lr=adam["learning_rate"],
            betas=(adam["beta1"], adam["beta2"]),
            eps=adam["eps"],
            weight_decay=adam["weight_decay"],
        )
        metrics = {"grad_norm": norm, "learning_rate": adam["learning_rate"]}
        result = _json({"metrics": metrics}, metrics)
        self.states.save(request, model, result)
        return result

    def _save(self, request: Request) -> Result:
        model, base = self.states.ready(request)
        is_external = request.kind == "save_weights_external"
        body = self._body(request, **_SAVE, overwrite=False, age_encryption_recipients=None)
        if body["age_encryption_recipients"]:
            raise Refused("age_encryption_recipients is not implemented here.")
        name = body["path"] if body["path"] is not None else f"seq-{request.seq}"
        done: list[Result] = []

        def note(path: str) -> None:
            done.append(_json({"path": path, "type": request.kind}, {"path": path}))
            self._store.finish(request, done[0], keeps_body=False)

        self._checkpoints.save(
            model,
            kind="external_weights" if is_external else "weights",
            name=name,
            write=partial(base.trainer.save, model["id"], with_optimizer=not is_external),
            note=note,
            ttl_s=body["ttl_seconds"],
            metadata=body["user_metadata"],
            may_replace=bool(body["overwrite"]),
        )
        return done[0]

    def _save_for_sampler(self, request: Request) -> Result:
        model, base = self.states.ready(request)
        body = self._body(request, **_SAVE, sampling_session_seq_id=None, kind="snapshot")
        is_inflight = _is_inflight(body)
        seq = body["sampling_session_seq_id"]
        name = body["path"]
        if name is None:
            name = _INFLIGHT if is_inflight else f"sampling-session-{seq}"
        done: list[Result] = []

        def note(path: str) -> None:
            answer = {"path": path}
            if body["path"] is None:
                session = self._store.add_sampling(
                    owner=request.owner,
                    session=model["session"],
                    seq=seq,
                    base=model["base"],
                    path=path,
                )
                answer = {"sampling_session_id": session}
            done.append(_json({**answer, "type": request.kind}, {"path": path}))
            self._store.finish(request, done[0], keeps_body=False)

        path = self._checkpoints.save(
            model,
            kind="sampler_weights",
            name=name,
            write=partial(base.trainer.save, model["id"], with_optimizer=False),
            note=note,
            ttl_s=body["ttl_seconds"],
            metadata=body["user_metadata"],
            version=request.seq if is_inflight else None,
        )
        if is_inflight:
            self._publish(path, owner=request.owner)
        return done[0]

    def _load(self, request: Request) -> Result:
        body = self._body(
            request,
            path=str,
            optimizer=bool,
            **dict.fromkeys(("model_id", "seq_id", "session_id", "model_seq_id", "base_model")),
            **dict.fromkeys(("user_metadata", "optimizer_config", "weights_access_token")),
        )
        if body["weights_access_token"] is not None:
            raise Refused("weights_access_token is not known here; copy the checkpoint's folder.")
        _refuse_optimizer(body["optimizer_config"] or {"type": "adamw"})
        row = self._checkpoints.find(body["path"], owner=request.owner)
        base = self.states.base_named(body["base_model"] or row["base"])
        if base.name != row["base"]:
            raise Refused(f"{body['path']} is of the base model {row['base']}, not {base.name}.")
        if body["optimizer"] and row["kind"] != "weights":
            raise Refused(f"{body['path']} has no state of an optimizer; save_state keeps one.")
        path = {"path": body["path"]}
        result = _json({**path, "model_id": request.scope, "type": "load_weights"}, path)
        if request.seq == 0:
            self._store.write(
                "UPDATE models SET base = ?, adapter = ?, metadata = ? WHERE id = ?",
                *(base.name, row["adapter"], json.dumps(body["user_metadata"]), request.scope),
            )
        model, _ = self.states.ready(request)
        if model["adapter"] != row["adapter"] and not _fit(model["adapter"], row["adapter"]):
            raise Refused(f"{body['path']} is of an adapter with another rank, alpha or layers.")
        source = self._checkpoints.folder_of(row)
        base.trainer.load(request.scope, source, with_optimizer=body["optimizer"])
        self.states.save(request, model, result)
        return result


_STEPS: Mapping[str, Callable[[Training, Request], Result]] = {
    "create_model": Training._create,
    "forward_backward": Training._forward_backward,
    "optim_step": Training._step,
    "save_weights": Training._save,
    "save_weights_external": Training._save,
    "save_weights_for_sampler": Training._save_for_sampler,
    "load_weights": Training._load,
}


def refusal_result(text: str, *, category: str = "user") -> Result:
    """Return how a unit of work ends that is refused, or fails; ``category``: user or server."""
    told = {"error": text, "category": category}
    summary = {"error": text[:_LONGEST_ERROR], "category": category}
    return Result(form="error", body=json.dumps(told).encode(), summary=summary)


def _json(answer: dict[str, Any], summary: Mapping[str, Any]) -> Result:
    return Result(form="json", body=json.dumps(answer).encode(), summary=summary)


def _refuse_optimizer(config: dict[str, Any]) -> None:
    if config.get("type", "adamw") != "adamw":
        raise Refused(f"the optimizer {config['type']!r} is not known here; use adamw.")


def _is_inflight(body: dict[str, Any]) -> bool:
    """Return whether a sampler gets weights that later ones take the place of.

    Raises:
        Refused: what is asked for does not go together.
    """
    kind, is_named = body["kind"], body["path"] is not None
    if kind not in {"snapshot", "inflight"}:
        raise Refused(f"the kind {kind!r} of a sampler is not known; use snapshot or inflight.")
    if is_named == isinstance(body["sampling_session_seq_id"], int):
        raise Refused("save_weights_for_sampler needs path, or sampling_session_seq_id.")
    if kind == "inflight" and (is_named or body["ttl_seconds"] is not None):
        raise Refused("a sampler of kind inflight takes no path and no ttl_seconds: its weights "
                      "are replaced by the next ones that are saved so.")  # fmt: skip
    return kind == "inflight"


def _fit(first: str, second: str) -> bool:
    """Return whether adapters have the same layers and rank, whatever their seeds."""
    one, other = json.loads(first), json.loads(second)
    return {**one, "seed": 0} == {**other, "seed": 0}
