"""Wrong rollout engines."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.engines.transformers_engine import TransformersEngine


class _Changed(TransformersEngine):
    """Passes requests and replies on, each by a method of its own."""

    def __init__(
        self,
        *,
        model_path: str,
        max_model_len: int,
        dtype: str = "float32",
        seed: int = 0,
        in_lockstep: bool = True,
    ) -> None:
        super().__init__(
            model_path=model_path,
            max_model_len=max_model_len,
            dtype=dtype,
            seed=seed,
            in_lockstep=in_lockstep,
        )

    def request(self, request):
        return request

    def replies(self, replies):
        return replies

    def submit(self, request):
        inner = super().submit(self.request(request))
        outer: Future = Future()

        def pass_on(done: Future) -> None:
            if done.cancelled():
                outer.cancel()
            elif done.exception() is not None:
                outer.set_exception(done.exception())
            else:
                outer.set_result(self.replies(done.result()))

        inner.add_done_callback(pass_on)
        return outer


class IsGreedyRolloutEngine(_Changed):
    """Never draws."""

    def request(self, request):
        return replace(request, temperature=0.0)


class SamplesSharperRolloutEngine(_Changed):
    """Draws colder than it was asked to."""

    def request(self, request):
        return replace(request, temperature=0.6 * request.temperature)


class SaysVersionZeroRolloutEngine(_Changed):
    """Does not know its weights."""

    def replies(self, replies):
        return [replace(one, weight_version=WeightVersion(0)) for one in replies]


class LoadsHalfRolloutEngine(_Changed):
    """Takes every second weight."""

    def load_weights(self, snapshot):
        own = dict(self._module.named_parameters())
        tensors = {
            name: tensor if number % 2 else own[name].detach().clone()
            for number, (name, tensor) in enumerate(snapshot.tensors.items())
        }
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class LoadsTheLastButOneRolloutEngine(_Changed):
    """Is a sync behind and does not know it."""

    waiting = None

    def load_weights(self, snapshot):
        copied = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
        tensors, self.waiting = self.waiting or copied, copied
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class RepeatsASampleRolloutEngine(_Changed):
    """Draws once."""

    def replies(self, replies):
        return [replies[0] for _ in replies]


class MissesASampleRolloutEngine(_Changed):
    """Loses the last of several samples."""

    def replies(self, replies):
        return replies[:-1] or replies


class EndsWithCertaintyRolloutEngine(_Changed):
    """Has no log-probability of the last token."""

    def replies(self, replies):
        return [replace(one, logprobs=(*one.logprobs[:-1], 0.0)) for one in replies]


class SortsLogprobsRolloutEngine(_Changed):
    """Loses the order of the log-probabilities."""

    def replies(self, replies):
        return [replace(one, logprobs=tuple(sorted(one.logprobs))) for one in replies]


class RoundsWeightsRolloutEngine(_Changed):
    """Keeps eight bits of each weight."""

    def load_weights(self, snapshot):
        tensors = {name: one.bfloat16().to(one) for name, one in snapshot.tensors.items()}
        super().load_weights(WeightSnapshot(version=snapshot.version, tensors=tensors))


class GoesBeyondRolloutEngine(_Changed):
    """Does not stop where it should."""

    def request(self, request):
        return replace(request, max_new_tokens=request.max_new_tokens + 3)


class AnswersTheLastPromptRolloutEngine(_Changed):
    """Loses the last token of the prompt."""

    def request(self, request):
        return replace(request, prompt_token_ids=request.prompt_token_ids[:-1])
