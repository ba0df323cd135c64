"""``trinity.common.constants``: names, words and limits that published parts ask for."""

from __future__ import annotations

from enum import Enum, EnumMeta
from typing import Any, ClassVar

__all__ = [
    "BUFFER_PATH_ENV_VAR",
    "CHECKPOINT_ROOT_DIR_ENV_VAR",
    "DEBUG_NAMESPACE",
    "EXPLORER_NAME",
    "LOG_DIR_ENV_VAR",
    "LOG_LEVEL_ENV_VAR",
    "LOG_NODE_IP_ENV_VAR",
    "MAX_EXP_BYTES_ENV_VAR",
    "MAX_MODEL_LEN",
    "MODEL_PATH_ENV_VAR",
    "PLUGIN_DIRS_ENV_VAR",
    "PREVIOUS_STAGE_CHECKPOINT_DIR_ENV_VAR",
    "ROLLOUT_WEIGHT_SYNC_GROUP_NAME",
    "SELECTOR_METRIC",
    "TASKSET_PATH_ENV_VAR",
    "TRAINER_NAME",
    "CaseInsensitiveEnum",
    "CaseInsensitiveEnumMeta",
    "OpType",
    "PromptType",
    "RunningStatus",
    "SaveStrategy",
    "StorageType",
    "SyncMethod",
    "SyncStyle",
]

EXPLORER_NAME = "explorer"
TRAINER_NAME = "trainer"
SELECTOR_METRIC = "selector_metric"  # an operator's metric that goes to the task selectors
ROLLOUT_WEIGHT_SYNC_GROUP_NAME = "rollout_weight_sync"
MAX_MODEL_LEN = 4096

PLUGIN_DIRS_ENV_VAR = "TRINITY_PLUGIN_DIRS"  # the only one of these that is read here
DEBUG_NAMESPACE = "TRINITY_DEBUG_NAMESPACE"
CHECKPOINT_ROOT_DIR_ENV_VAR = "TRINITY_CHECKPOINT_ROOT_DIR"
PREVIOUS_STAGE_CHECKPOINT_DIR_ENV_VAR = "TRINITY_PREV_STAGE_CKPT_DIR"
MODEL_PATH_ENV_VAR = "TRINITY_MODEL_PATH"
TASKSET_PATH_ENV_VAR = "TRINITY_TASKSET_PATH"
BUFFER_PATH_ENV_VAR = "TRINITY_BUFFER_PATH"
LOG_DIR_ENV_VAR = "TRINITY_LOG_DIR"
LOG_LEVEL_ENV_VAR = "TRINITY_LOG_LEVEL"
LOG_NODE_IP_ENV_VAR = "TRINITY_LOG_NODE_IP"
MAX_EXP_BYTES_ENV_VAR = "TRINITY_MAX_EXP_SIZE"


class CaseInsensitiveEnumMeta(EnumMeta):
    """Finds a member by any spelling of its name: ``E["sql"]``, ``E.sql``, ``E("SQL")``."""

    older_names: ClassVar[dict[str, str]] = {}  # of a word, in small letters

    def __getitem__(cls, name: str) -> Any:  # Any: a member
        return super().__getitem__(cls.older_names.get(name.lower(), name).upper())

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return cls[name]
        except KeyError as error:
            raise AttributeError(f"{cls.__name__} has no member {name!r}") from error

    def __call__(cls, value: Any, *args: Any, **options: Any) -> Any:
        """Return the member of a word, or, with members, a new enumeration."""
        if isinstance(value, str) and not args:
            value = cls.older_names.get(value.lower(), value).lower()
        return super().__call__(value, *args, **options)


class CaseInsensitiveEnum(Enum, metaclass=CaseInsensitiveEnumMeta):
    """A closed set of words in small letters, named by any spelling."""


class PromptType(CaseInsensitiveEnum):
    """The form of supervised rows."""

    MESSAGES = "messages"
    PLAINTEXT = "plaintext"


class StorageType(CaseInsensitiveEnum):
    """Where experiences or rows are kept."""

    SQL = "sql"
    QUEUE = "queue"
    FILE = "file"


class _SyncMethodMeta(CaseInsensitiveEnumMeta):
    older_names: ClassVar[dict[str, str]] = {"online": "nccl", "offline": "checkpoint"}


class SyncMethod(CaseInsensitiveEnum, metaclass=_SyncMethodMeta):
    """How weights reach the rollout engines."""

    NCCL = "nccl"
    CHECKPOINT = "checkpoint"
    MEMORY = "memory"


class _SyncStyleMeta(CaseInsensitiveEnumMeta):
    older_names: ClassVar[dict[str, str]] = {
        "dynamic_by_explorer": "explorer_driven",
        "dynamic_by_trainer": "trainer_driven",
    }


class SyncStyle(CaseInsensitiveEnum, metaclass=_SyncStyleMeta):
    """Who decides when weights are moved."""

    FIXED = "fixed"
    TRAINER_DRIVEN = "trainer_driven"
    EXPLORER_DRIVEN = "explorer_driven"
    FULLY_ASYNC = "fully_async"


class SaveStrategy(CaseInsensitiveEnum):
    """Who writes a checkpoint at the same time."""

    SINGLE_THREAD = "single_thread"
    SINGLE_PROCESS = "single_process"
    SINGLE_NODE = "single_node"
    UNRESTRICTED = "unrestricted"


class RunningStatus(Enum):
    """What explorer and trainer are doing."""

    RUNNING = "running"
    REQUIRE_SYNC = "require_sync"
    STOPPED = "stopped"


class OpType(Enum):
    """What reward shaping does with a number of an experience."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
