"""Where rooms and plugins meet: the protocols, with as few methods as their callers call.

explorer --ExperienceSink--> storage --StrategySource--> trainer --SyncMethod--> engines
^                                                                                     |
+-- RolloutEngine <----------------------- load_weights(WeightSnapshot) -------------+

Storage, engine, trainer, monitor and sync method are base classes: what a part may leave out has a
default. The words of ``ComponentSpec.provides`` say what it can do before it is imported.
"""

from trinity.common.ports.endpoint import Endpoint, EndpointOpener, RunSession
from trinity.common.ports.engine import (
    InFlight,
    RolloutEngine,
)
from trinity.common.ports.monitor import Monitor
from trinity.common.ports.optional import __getattr__ as __getattr__
from trinity.common.ports.priority import PriorityFn
from trinity.common.ports.processing import ExperienceOperator, ExperienceProcessor, OperatorPort
from trinity.common.ports.reply import ParsedReply, ReplyParser, ToolCall
from trinity.common.ports.request import Completion, GenerationRequest, RunKey, Structure
from trinity.common.ports.run_mode import RunMode
from trinity.common.ports.state import Stateful
from trinity.common.ports.storage import (
    ExperienceSink,
    Peers,
    Storage,
    StorageReport,
    StorageUse,
    StrategySource,
)
from trinity.common.ports.tasks import (
    EvaluationSet,
    RowValues,
    TaskReader,
    TaskSelector,
)
from trinity.common.ports.trainer import SyncMethod, Trainer
from trinity.common.ports.weights import WeightSnapshot, WeightVersion

__all__ = [
    "Completion",
    "Endpoint",
    "EndpointOpener",
    "EvaluationSet",
    "ExperienceOperator",
    "ExperienceProcessor",
    "ExperienceSink",
    "GenerationRequest",
    "InFlight",
    "Monitor",
    "OperatorPort",
    "ParsedReply",
    "Peers",
    "PriorityFn",
    "ReplyParser",
    "RolloutEngine",
    "RowValues",
    "RunKey",
    "RunMode",
    "RunSession",
    "Stateful",
    "Storage",
    "StorageReport",
    "StorageUse",
    "StrategySource",
    "Structure",
    "SyncMethod",
    "TaskReader",
    "TaskSelector",
    "ToolCall",
    "Trainer",
    "WeightSnapshot",
    "WeightVersion",
]
