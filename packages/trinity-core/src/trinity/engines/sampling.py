"""Choose the next token of every row.

    B rows of the batch   V vocabulary   N blocks of W columns

What the settings of a request change (penalty, minimum length, structure, min-p, top-k, top-p)
changes what is sampled, never the log-probability that is reported: that one is of the model's own
distribution.

Uniform numbers are a function of each sample's key alone: Philox (Salmon et al., 2011) with the
hash of the key, numpy's for one sample, and the same for many samples at once, where building a
generator for each would cost more than its numbers.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trinity.engines.rows import is_penalised, least_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from trinity.common.ports import GenerationRequest, RunKey, WeightVersion

_BITS = 23  # u * total < total holds in float32 for every total: the search never runs off the end
_FEW = 16  # samples; from here on, all at once is faster
_MANY = 4096  # numbers; from here on, one sample after the other is as fast and takes less memory
_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms_of(
    samples: Sequence[tuple[RunKey, int]],
    *,
    seed: int,
    version: WeightVersion,
    counts: Sequence[int],
) -> list[list[float]]:
    """Return for each (key, sample) as many numbers as ``counts`` says; as `sample_uniforms`."""
    if len(samples) < _FEW or max(counts) > _MANY:
        return [
            sample_uniforms(key, sample=sample, seed=seed, version=version, count=count).tolist()
            for (key, sample), count in zip(samples, counts, strict=True)
        ]
    digests = b"".join(_digest(key, sample, seed, version) for key, sample in samples)
    keys_R2 = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    rows = _uniform(_philox(keys_R2, num_blocks=-(-max(counts) // 4))).tolist()
    return [row[:count] for row, count in zip(rows, counts, strict=True)]


def sample_uniforms(
    key: RunKey, *, sample: int, seed: int, version: WeightVersion, count: int
) -> NDArray[np.float32]:
    """Return ``count`` numbers in [0, 1) for one sample of one request.

    They depend on nothing else, so that neither the other requests of a batch nor the order of
    threads changes what is sampled.
    """
    digest = _digest(key, sample, seed, version)
    generator = np.random.Philox(key=int.from_bytes(digest, "little"))
    return _uniform(generator.random_raw(count))


def _digest(key: RunKey, sample: int, seed: int, version: WeightVersion) -> bytes:
    name = (seed, key.batch, key.task, key.run, key.request, key.draw, sample, int(version))
    return hashlib.sha256(repr(name).encode()).digest()[:16]


def _uniform(raw: NDArray[np.uint64]) -> NDArray[np.float32]:
    return (raw >> np.uint64(64 - _BITS)).astype(np.float32) * np.float32(2.0**-_BITS)


def _philox(keys_R2: NDArray[np.uint64], *, num_blocks: int) -> NDArray[np.uint64]:
    """Return the first ``num_blocks`` blocks of four numbers for each key, ``[R, 4 * blocks]``."""
    shape = (len(keys_R2), num_blocks)
    zeros = np.zeros(shape, dtype=np.uint64)
    one = np.broadcast_to(np.arange(1, num_blocks + 1, dtype=np.uint64), shape)
    state = (one, zeros, zeros, zeros)
    for turn in range(_ROUNDS):
        first, second = (
            keys_R2[:, i, None] + np.uint64(turn * _STEPS[i] % 2**64) for i in range(2)
        )
        high0, low0 = _product(_FACTORS[0], state[0])
        high1, low1 = _product(_FACTORS[1], state[2])
        state = (high1 ^ state[1] ^ first, low1, high0 ^ state[3] ^ second, low0)
    return np.stack(state, axis=-1).reshape(len(keys_R2), -1)


def _product(
    factor: int, numbers: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the upper and the lower 64 bits of a product."""
    a_high, a_low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    b_high, b_low = numbers >> _HALF, numbers & _LOW
    low_low, high_low = a_low * b_low, a_high * b_low
    middle = (low_low >> _HALF) + (high_low & _LOW) + a_low * b_high  # below 2**64
    upper = a_high * b_high + (high_low >> _HALF) + (middle >> _HALF)
    return upper, np.uint64(factor) * numbers


_FROM_THE_LEFT = frozenset({"cpu"})  # devices that add numbers up in their order
_JUST_BELOW_1 = 1 - 2.0**-23  # in float32, x * this < x


class Sampler:
    """Holds the settings of the rows that are being continued.

    Args:
        rows: each row's request, and the tokens that it has by now; a single row whose settings
            hold for a batch of any size.
        eos_V: which tokens end a reply.
    """

    def __init__(
        self, rows: Sequence[tuple[GenerationRequest, Sequence[int]]], *, eos_V: Tensor
    ) -> None:
        device = eos_V.device
        requests = [request for request, _ in rows]
        self._eos_V = eos_V
        heat = [r.temperature or 1.0 for r in requests]
        self._heat_B = on_device(heat, device) if set(heat) != {1.0} else None
        greedy = [r.temperature == 0 for r in requests]
        self._greedy_B = on_device(greedy, device)
        self._has_greedy, self._all_greedy = any(greedy), all(greedy)
        self._top_k_B = on_device([max(r.top_k, 0) or len(eos_V) for r in requests], device)
        self._top_p_B = on_device([r.top_p for r in requests], device)
        self._min_p_B = on_device([float(r.min_p) for r in requests], device)
        is_cut = [_is_cut(r, len(eos_V)) for r in requests]
        self._cut_B = on_device(is_cut, device) if any(is_cut) else None
        least = [least_tokens(r) for r in requests]
        self._min_new_B = on_device(least, device)
        self._shortest = max(least, default=0)
        self._penalty_B = on_device([float(r.repetition_penalty) for r in requests], device)
        has_penalty = any(map(is_penalised, requests))
        self._seen_BV = _seen(rows, eos_V) if has_penalty else None
        self._presence_B1 = on_device([r.presence_penalty for r in requests], device)[:, None]
        self._frequency_B1 = on_device([r.frequency_penalty for r in requests], device)[:, None]
        self._counts_BV = _counts(rows, eos_V) if has_penalty else None
        self._bias_BV = _bias(requests, eos_V) if any(r.logit_bias for r in requests) else None

    @torch.no_grad()
    def choose(
        self,
        logits_BV: Tensor,
        *,
        uniforms_B: Tensor,
        lengths: Sequence[int],
        allowed_BV: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the next token of each row and its log-probability, both ``[B]``.

        Args:
            logits_BV: float32.
            uniforms_B: a number in [0, 1) for each row.
            lengths: how many tokens each row has been continued by.
            allowed_BV: which tokens each row's structure allows; None: any.
        """
        scores_BV = self._adjusted(logits_BV, lengths)
        if allowed_BV is not None:
            scores_BV = scores_BV.masked_fill(~allowed_BV, float("-inf"))
        is_plain = scores_BV is logits_BV
        probs_BV = torch.softmax(self._heated(scores_BV), dim=-1)
        tokens_B = self._sampled(scores_BV, probs_BV, uniforms_B)
        if is_plain:  # the chosen one's probability is above 0: its logarithm is exact enough
            logprobs_B = probs_BV.gather(1, tokens_B[:, None]).log_().squeeze(1)
        else:
            full_BV = torch.log_softmax(self._heated(logits_BV), dim=-1)
            logprobs_B = full_BV.gather(1, tokens_B[:, None]).squeeze(1)
        if self._seen_BV is not None:
            self._seen_BV.scatter_(1, tokens_B[:, None], value=True)
            self._counts_BV[torch.arange(len(tokens_B)), tokens_B] += 1
        return tokens_B, logprobs_B

    def _heated(self, scores_BV: Tensor) -> Tensor:
        return scores_BV if self._heat_B is None else scores_BV / self._heat_B[:, None]

    def _adjusted(self, logits_BV: Tensor, lengths: Sequence[int]) -> Tensor:
        scores_BV = logits_BV if self._bias_BV is None else logits_BV + self._bias_BV
        if self._seen_BV is not None:
            penalty_B1 = self._penalty_B[:, None]
            cheaper_BV = torch.where(scores_BV < 0, scores_BV * penalty_B1, scores_BV / penalty_B1)
            scores_BV = torch.where(self._seen_BV, cheaper_BV, scores_BV)
            off_BV = self._frequency_B1 * self._counts_BV
            scores_BV = scores_BV - off_BV - self._presence_B1 * (self._counts_BV > 0)
        if self._shortest and min(lengths) < self._shortest:
            length_B = on_device(lengths, logits_BV.device)
            is_barred_BV = (self._min_new_B > length_B)[:, None] & self._eos_V
            scores_BV = scores_BV.masked_fill(is_barred_BV, float("-inf"))
        return scores_BV

    def _sampled(self, scores_BV: Tensor, probs_BV: Tensor, uniforms_B: Tensor) -> Tensor:
        if self._all_greedy:
            return scores_BV.argmax(dim=-1)
        tokens_B = search(probs_BV, uniforms_B)
        if self._cut_B is not None:
            cut = self._cut_B.expand(len(tokens_B)).nonzero().squeeze(1)
            tokens_B[cut] = _search_cut(
                probs_BV[cut],
                uniforms_B[cut],
                top_k_B=self._top_k_B.expand(len(tokens_B))[cut],
                top_p_B=self._top_p_B.expand(len(tokens_B))[cut],
                min_p_B=self._min_p_B.expand(len(tokens_B))[cut],
            )
        if self._has_greedy:
            tokens_B = torch.where(self._greedy_B, scores_BV.argmax(dim=-1), tokens_B)
        return tokens_B


def search(weights_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """Return for each row the index that ``u`` of the row's total weight falls into, ``[B]``.

    First the block of columns, by the blocks' sums, then the column in it: sums are cheap, and a
    cumulative sum over all columns is not. An index of weight 0 is never returned. Where the
    weights are NaN it is the last index.
    """
    width = _block_width(weights_BV.shape[1])
    blocks_BNW = weights_BV.unflatten(1, (-1, width))
    sums_BN = blocks_BNW.sum(dim=-1)
    cumulative_BN = _cumulative(sums_BN)
    wanted_B1 = uniforms_B[:, None] * cumulative_BN[:, -1:]
    block_B1 = _found(cumulative_BN, wanted_B1)
    before_B1 = cumulative_BN.gather(1, block_B1) - sums_BN.gather(1, block_B1)
    rows_B = torch.arange(len(weights_BV), device=weights_BV.device)
    inner_BW = _cumulative(blocks_BNW[rows_B, block_B1.squeeze(1)])
    rest_B1 = (wanted_B1 - before_B1).clamp_(min=0)  # rounding may lead out of the block
    rest_B1 = torch.minimum(rest_B1, inner_BW[:, -1:] * _JUST_BELOW_1)
    return (block_B1 * width + _found(inner_BW, rest_B1)).squeeze(1)


def _cumulative(weights_BN: Tensor) -> Tensor:
    """Return the sums up to each column; they never fall, and rise only where there is a weight.

    A GPU adds in another order at each column, so that its sums differ in the last bits also where
    the weight is 0: such a column could be found.
    """
    sums_BN = weights_BN.cumsum(dim=-1)
    if weights_BN.device.type in _FROM_THE_LEFT:
        return sums_BN
    return sums_BN.masked_fill(weights_BN == 0, float("-inf")).cummax(dim=-1).values


def _found(cumulative_BN: Tensor, wanted_B1: Tensor) -> Tensor:
    found_B1 = torch.searchsorted(cumulative_BN, wanted_B1, right=True)
    return found_B1.clamp_(max=cumulative_BN.shape[1] - 1)


@lru_cache(maxsize=8)
def _block_width(columns: int) -> int:
    """Return the divisor that is nearest to the square root."""
    divisors = [width for width in range(1, columns + 1) if columns % width == 0]
    return min(divisors, key=lambda width: abs(width * width - columns))


def _search_cut(
    probs_BV: Tensor, uniforms_B: Tensor, *, top_k_B: Tensor, top_p_B: Tensor, min_p_B: Tensor
) -> Tensor:
    sorted_BV, index_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(probs_BV.shape[1], device=probs_BV.device)
    is_rare_BV = sorted_BV < min_p_B[:, None] * sorted_BV[:, :1]
    sorted_BV = sorted_BV.masked_fill((ranks_V >= top_k_B[:, None]) | is_rare_BV, 0.0)
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV  # probability of the likelier ones
    allowed_B1 = top_p_B[:, None] * sorted_BV.sum(dim=-1, keepdim=True)
    sorted_BV = sorted_BV.masked_fill((before_BV >= allowed_B1) & (ranks_V > 0), 0.0)
    return index_BV.gather(1, search(sorted_BV, uniforms_B)[:, None]).squeeze(1)


def _is_cut(request: GenerationRequest, vocab: int) -> bool:
    has_limit = 0 < request.top_k < vocab or request.top_p < 1.0 or request.min_p > 0.0
    return has_limit and request.temperature != 0


def _seen(rows: Sequence[tuple[GenerationRequest, Sequence[int]]], eos_V: Tensor) -> Tensor:
    seen_BV = torch.zeros(len(rows), len(eos_V), dtype=torch.bool, device=eos_V.device)
    for row, (request, tokens) in enumerate(rows):
        seen_BV[row, [*request.prompt_token_ids, *tokens]] = True
    return seen_BV


def _counts(rows: Sequence[tuple[GenerationRequest, Sequence[int]]], eos_V: Tensor) -> Tensor:
    texts = [torch.tensor(tokens, dtype=torch.int64) for _, tokens in rows]
    return torch.stack([text_T.bincount(minlength=len(eos_V)) for text_T in texts]).to(eos_V.device)


def _bias(requests: Sequence[GenerationRequest], eos_V: Tensor) -> Tensor:
    bias_BV = torch.zeros(len(requests), len(eos_V), device=eos_V.device)
    for row, request in enumerate(requests):
        for token, bias in request.logit_bias:
            bias_BV[row, token] = bias
    return bias_BV


def on_device(values: Sequence[Any], device: torch.device) -> Tensor:
    """Return numbers as a tensor; the host does not wait until a GPU has them."""
    made = torch.tensor(values)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made
