"""A plugin of plugin API 1 whose parts say by words of ``provides`` what they can do."""

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_storages():
    words = frozenset({"waiting", "put_back", "in_order"})
    return {"words_storage": ComponentSpec("frozen_words:WordsStorage", provides=words)}


@hookimpl
def trinity_rollout_engines():
    words = frozenset({"logprobs", "weights:memory", "busy_s"})
    return {"words_engine": ComponentSpec("frozen_words:WordsEngine", provides=words)}


@hookimpl
def trinity_trainers():
    words = frozenset({"ref_logprob", "trained_batch"})
    return {"words_trainer": ComponentSpec("frozen_words:WordsTrainer", provides=words)}


@hookimpl
def trinity_sync_methods():
    return {"words_sync": "frozen_words:WordsSync"}


@hookimpl
def trinity_monitors():
    words = frozenset({"flush", "samples"})
    return {"words_monitor": ComponentSpec("frozen_words:WordsMonitor", provides=words)}
