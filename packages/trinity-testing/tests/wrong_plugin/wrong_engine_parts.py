"""Rollout engines, one right, the others with one mistake each."""

import threading
from concurrent.futures import Future

import torch
from trinity.common.ports import Completion, RolloutEngine
from trinity.errors import ModelError


class RightEngine(RolloutEngine):
    """Is right: answers at once, one token after the other, seeded by the key."""

    def __init__(self, model_path):
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(model_path).eval()
        self.stops = self.model.generation_config.eos_token_id
        self.lock = threading.Lock()
        self.loaded = 0
        self.is_closed = False

    @property
    def version(self):
        return self.loaded

    def submit(self, request):
        future = Future()
        if self.is_closed:
            raise ModelError("closed")
        self.answer(future, request)
        return future

    def answer(self, future, request):
        with self.lock:
            future.set_result(self.samples(request))

    def samples(self, request):
        return [self.sample(request, number) for number in range(request.n)]

    def random(self, request, number):
        seed = hash((request.key, number, 7)) % 2**31
        return torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def sample(self, request, number):
        ids, logprobs = list(request.prompt_token_ids), []
        random = self.random(request, number)
        for _ in range(self.limit(request)):
            token, logprob = self.drawn(
                self.model(torch.tensor([ids])).logits[0, -1], request, random
            )
            ids.append(token)
            logprobs.append(logprob)
            if token in self.stops:
                break
        return self.completion(request, ids[len(request.prompt_token_ids) :], logprobs)

    def limit(self, request):
        return request.max_new_tokens

    def drawn(self, logits, request, random):
        spread = (logits.float() / (request.temperature or 1.0)).log_softmax(-1)
        if request.temperature == 0:
            token = self.likeliest(logits)
        else:
            likely = spread.exp()
            if request.top_k > 0:
                likely[likely < likely.topk(request.top_k).values[-1]] = 0.0
            token = int(torch.multinomial(likely, 1, generator=random))
        return token, float(self.told(spread, request)[token])

    def likeliest(self, logits):
        return int(logits.argmax())

    def told(self, spread, request):
        return spread

    def completion(self, request, token_ids, logprobs):
        return Completion(
            token_ids=tuple(token_ids),
            logprobs=tuple(logprobs),
            finish_reason="stop" if token_ids[-1] in self.stops else "length",
            weight_version=self.loaded,
        )

    def load_weights(self, snapshot):
        with self.lock:
            self.model.load_state_dict(dict(snapshot.tensors), strict=False)
            self.loaded = snapshot.version

    def close(self):
        self.is_closed = True


class GivesOneOnly(RightEngine):
    """Gives one sample, however many are asked for."""

    def samples(self, request):
        return super().samples(request)[:1]


class DrawsOnce(RightEngine):
    """Gives the same sample n times."""

    def samples(self, request):
        return super().samples(request)[:1] * request.n


class GoesOnTooLong(RightEngine):
    """Gives two tokens more than asked for."""

    def limit(self, request):
        return request.max_new_tokens + 2


class TellsTheCutSoftmax(RightEngine):
    """Tells the log-probability among the five likeliest, where it draws from these."""

    def told(self, spread, request):
        if request.top_k <= 0:
            return spread
        return spread - spread.topk(request.top_k).values.logsumexp(-1)


class TakesTheSecond(RightEngine):
    """Takes the second likeliest token at temperature 0."""

    def likeliest(self, logits):
        return int(logits.topk(2).indices[1])


class DrawsInOrder(RightEngine):
    """Draws from one generator, as the requests come, and claims to be seeded by the key."""

    def __init__(self, model_path):
        super().__init__(model_path)
        self.one = torch.Generator().manual_seed(0)

    def random(self, request, number):
        return self.one


class KeepsOldWeights(RightEngine):
    """Takes over the version, and not the weights."""

    def load_weights(self, snapshot):
        self.loaded = snapshot.version


class AnswersWhenClosed(RightEngine):
    """Answers after it was closed."""

    def close(self):
        pass


class DiesOfACancel(RightEngine):
    """Has a worker that ends when a future was given up before it was answered."""

    def __init__(self, model_path):
        super().__init__(model_path)
        self.asked = []
        self.changed = threading.Condition()
        self.may_work = threading.Event()
        threading.Thread(target=self.work, daemon=True).start()

    def answer(self, future, request):
        with self.changed:
            self.asked.append((future, request))
            self.changed.notify_all()
        if request.max_new_tokens < 40:
            self.may_work.set()

    def work(self):
        while True:
            self.may_work.wait()
            with self.changed:
                self.changed.wait_for(lambda: self.asked)
                future, request = self.asked.pop(0)
            if future.cancelled():
                return
            super().answer(future, request)


class SharesItsPrompt(RightEngine):
    """Keeps the prompt that was asked last, for all callers."""

    def answer(self, future, request):
        self.request = request
        threading.Event().wait(0.002)
        with self.lock:
            asked = self.request
            future.set_result(self.samples(asked))


class CountsRuns(RightEngine):
    """Is told that a run began, and not which."""

    def run_began(self):
        pass

    def run_ended(self):
        pass


class StopsNowhere(RightEngine):
    """Claims stop strings, and does not look for them."""

    takes_stop_strings = True


class HoldsToNothing(RightEngine):
    """Claims structure, and says what comes to its mind."""

    takes_structure = True


class ScoresTooWell(RightEngine):
    """Finds every text likely."""

    def score(self, token_ids, temperature):
        future = Future()
        future.set_result([-0.01] * (len(token_ids) - 1))
        return future
