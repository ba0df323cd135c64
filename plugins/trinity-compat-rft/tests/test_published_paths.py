"""Trinity-RFT's import paths lead to modules that do what the published ones do."""

from __future__ import annotations

import importlib
import logging
import math

import pytest
import torch
from trinity.extend.known import distribution_of, known_paths
from trinity_compat_rft.paths.table import PUBLISHED_MODULES


def test_the_published_paths_are_the_modules_of_the_table():
    published = {path: importlib.import_module(path) for path in PUBLISHED_MODULES}

    assert published == {
        path: importlib.import_module(module) for path, module in PUBLISHED_MODULES.items()
    }
    assert [
        f"{path}.{name}"
        for path, module in published.items()
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ] == []


def test_the_install_hints_know_the_published_paths_and_no_other_of_ours():
    ours = {
        path
        for path in known_paths()
        if distribution_of("import_paths", path) == "trinity-compat-rft"
    }

    assert ours == set(PUBLISHED_MODULES)


def test_a_logger_writes_into_the_log_of_the_run():
    from trinity.utils.log import get_logger

    assert get_logger("my.part") is logging.getLogger("trinity.my.part")
    assert get_logger() is logging.getLogger("trinity")
    assert get_logger("loud", logging.ERROR).level == logging.ERROR
    logging.getLogger("trinity.loud").setLevel(logging.NOTSET)


def test_a_mark_stays_on_what_it_is_put_on():
    from trinity.utils.annotations import Deprecated, Experimental

    @Experimental
    @Deprecated
    class Marked:
        pass

    assert Marked._is_experimental
    assert Marked._is_deprecated


def test_a_timer_notes_the_seconds_of_a_block():
    from trinity.utils.timer import Timer

    metrics = {}
    with pytest.raises(KeyError), Timer(metrics, "time/read"):
        raise KeyError

    assert metrics["time/read"] >= 0.0


def test_a_word_is_a_member_in_any_spelling():
    from trinity.common.constants import SELECTOR_METRIC, OpType, StorageType, SyncMethod, SyncStyle

    assert StorageType("File") is StorageType["file"] is StorageType.file is StorageType.FILE
    assert SyncMethod("online") is SyncMethod.NCCL
    assert SyncStyle("dynamic_by_trainer") is SyncStyle.TRAINER_DRIVEN
    assert OpType("add") is OpType.ADD
    assert SELECTOR_METRIC == "selector_metric"
    assert not hasattr(StorageType, "tape")


def test_metrics_are_merged_by_their_suffix():
    from trinity.utils.metrics import (
        aggregate_eval_metrics,
        aggregate_metrics,
        aggregate_run_level_metrics,
    )

    rows = [{"reward": 1.0, "calls:sum": 2, "text": "no number"}, {"reward": 0.0, "calls:sum": 3}]

    assert aggregate_metrics(rows, prefix="rollout") == {
        "rollout/reward/mean": 0.5,
        "rollout/reward/max": 1.0,
        "rollout/reward/min": 0.0,
        "rollout/calls/sum": 5.0,
    }
    assert aggregate_metrics(rows, default_output_stats=["std"])["reward/std"] == 0.5
    assert aggregate_eval_metrics(rows, "eval") == {"eval/reward": 0.5, "eval/calls/sum": 5.0}
    assert aggregate_eval_metrics(rows, detailed_stats=True)["reward/std"] == 0.5
    assert aggregate_run_level_metrics(rows) == {"reward": 0.5, "calls:sum": 5.0}
    assert aggregate_metrics([]) == {}


def test_a_loss_is_aggregated_by_the_published_names():
    from trinity.algorithm.utils import aggregate_loss

    values = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])

    def of(mode, **options):
        return float(aggregate_loss(values=values, mask=mask, loss_agg_mode=mode, **options))

    assert math.isclose(of("token-mean"), 7 / 3, rel_tol=1e-6)  # (1 + 2 + 4) / 3 tokens
    assert of("seq-mean-token-sum") == 3.5  # (3 + 4) / 2 rows
    assert math.isclose(of("seq-mean-token-mean"), 2.75, rel_tol=1e-6)  # (1.5 + 4) / 2 rows
    assert math.isclose(of("seq-mean-token-sum-norm"), 7 / 3, rel_tol=1e-6)  # 7 by a length of 3
    assert math.isclose(of("seq-mean-token-sum-norm", normalizer=14), 0.5, rel_tol=1e-6)
    with pytest.raises(ValueError, match="token-mean"):
        of("token-maen")


def test_values_are_whitened_over_what_the_mask_leaves():
    from trinity.algorithm.utils import masked_mean, masked_sum, masked_var, masked_whiten

    values, mask = torch.tensor([1.0, 3.0, 99.0]), torch.tensor([True, True, False])

    assert float(masked_sum(values, mask, axis=0)) == 4.0
    assert math.isclose(float(masked_mean(values, mask)), 2.0, rel_tol=1e-6)
    assert math.isclose(float(masked_var(values, mask)), 2.0, rel_tol=1e-6)  # (1 + 1) / (2 - 1)
    assert math.isclose(float(masked_var(values, mask, False)), 1.0, rel_tol=1e-6)
    assert math.isclose(float(masked_whiten(values, mask)[0]), -1 / math.sqrt(2), rel_tol=1e-4)
    assert math.isclose(
        float(masked_whiten(values, mask, False)[1]), 2 + 1 / math.sqrt(2), rel_tol=1e-4
    )


def test_metrics_get_a_prefix_in_place():
    from trinity.algorithm.utils import prefix_metrics

    metrics = {"a": 1}

    assert prefix_metrics({"b": 2}, "actor", metrics) is metrics
    assert metrics == {"a": 1, "actor/b": 2}
