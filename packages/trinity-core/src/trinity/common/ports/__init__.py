"""Where rooms and plugins meet: the protocols, with as few methods as their callers call.

explorer --ExperienceSink--> storage --ExperienceSource--> trainer --SyncMethod--> engines
^                                                                                     |
+-- RolloutEngine <----------------------- load_weights(WeightSnapshot) -------------+

What a part must have is one protocol; each thing that it may have is a protocol of its own, named
by a word of ``ComponentSpec.provides``, whose docstring says what happens without it.
"""

from trinity.common.ports.endpoint import Endpoint, EndpointOpener, RunSession
from trinity.common.ports.engine import (
    Busy,
    InFlight,
    Limits,
    Preflight,
    RolloutEngine,
    Scores,
    SwapsInFlight,
)
from trinity.common.ports.monitor import Flushes, Monitor, TakesSamples
from trinity.common.ports.priority import PriorityFn
from trinity.common.ports.processing import ExperienceOperator, ExperienceProcessor, OperatorPort
from trinity.common.ports.reply import ParsedReply, ReplyParser, ToolCall
from trinity.common.ports.request import Completion, GenerationRequest, RunKey, Structure
from trinity.common.ports.serving import (
    OWN_NAMES,
    DueRun,
    Front,
    RewardRefusedError,
    RunOverError,
    RunStore,
    ServedRun,
)
from trinity.common.ports.state import Stateful
from trinity.common.ports.storage import (
    Counted,
    DropsOlder,
    ExperienceSink,
    ExperienceSource,
    GivesAgain,
    GivesGroups,
    KeepsLedger,
    OwnOrder,
    Storage,
    StorageUse,
    StrategySource,
    TakesBack,
    Tallied,
    Waiting,
)
from trinity.common.ports.tasks import (
    EvaluationSet,
    RowValues,
    TaskFeedback,
    TaskReader,
    TaskSelector,
)
from trinity.common.ports.trainer import SharesModule, SyncMethod, TellsTrained, Trainer
from trinity.common.ports.weights import WeightSnapshot, WeightVersion

__all__ = [
    "OWN_NAMES",
    "Busy",
    "Completion",
    "Counted",
    "DropsOlder",
    "DueRun",
    "Endpoint",
    "EndpointOpener",
    "EvaluationSet",
    "ExperienceOperator",
    "ExperienceProcessor",
    "ExperienceSink",
    "ExperienceSource",
    "Flushes",
    "Front",
    "GenerationRequest",
    "GivesAgain",
    "GivesGroups",
    "InFlight",
    "KeepsLedger",
    "Limits",
    "Monitor",
    "OperatorPort",
    "OwnOrder",
    "ParsedReply",
    "Preflight",
    "PriorityFn",
    "ReplyParser",
    "RewardRefusedError",
    "RolloutEngine",
    "RowValues",
    "RunKey",
    "RunOverError",
    "RunSession",
    "RunStore",
    "Scores",
    "ServedRun",
    "SharesModule",
    "Stateful",
    "Storage",
    "StorageUse",
    "StrategySource",
    "Structure",
    "SwapsInFlight",
    "SyncMethod",
    "TakesBack",
    "TakesSamples",
    "Tallied",
    "TaskFeedback",
    "TaskReader",
    "TaskSelector",
    "TellsTrained",
    "ToolCall",
    "Trainer",
    "Waiting",
    "WeightSnapshot",
    "WeightVersion",
]
