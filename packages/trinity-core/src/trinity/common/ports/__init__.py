"""Where component packages and plugins meet: base classes, and protocols.

explorer --ExperienceSink--> storage --StrategySource--> trainer --SyncMethod--> engines
^                                                                                     |
+-- RolloutEngine <----------------------- load_weights(WeightSnapshot) -------------+

Storage, engine, trainer, monitor, sync method and priority function are base classes: what a part
may leave out has a default. The words of ``ComponentSpec.provides`` say what it can do before it is
imported.
"""

from trinity.common.ports.advisor import Advice, Advisor, Observation
from trinity.common.ports.endpoint import Endpoint, EndpointOpener, RunSession
from trinity.common.ports.engine import InFlight, RolloutEngine
from trinity.common.ports.monitor import Monitor
from trinity.common.ports.priority import PriorityFn
from trinity.common.ports.processing import ExperienceOperator, ExperienceProcessor, OperatorPort
from trinity.common.ports.request import (
    Completion,
    GenerationRequest,
    ParsedReply,
    ReplyParser,
    RunKey,
    Structure,
    ToolCall,
)
from trinity.common.ports.run_mode import RunMode
from trinity.common.ports.sandbox import Sandbox
from trinity.common.ports.storage import (
    ExperienceSink,
    Peers,
    Stateful,
    Storage,
    StorageReport,
    StorageUse,
    StrategySource,
)
from trinity.common.ports.tasks import EvaluationSet, RowValues, TaskReader, TaskSelector
from trinity.common.ports.trainer import SyncMethod, Trainer
from trinity.common.ports.weights import WeightSnapshot, WeightVersion

__all__ = [
    "Advice",
    "Advisor",
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
    "Observation",
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
    "Sandbox",
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

#: Protocols of optional methods, which are methods of the base classes now.
_NAMES = (
    "Busy Counted DropsOlder ExperienceSource Flushes GivesAgain GivesGroups KeepsLedger Limits "
    "OwnOrder Preflight Scores SharesModule SwapsInFlight TakesBack TakesSamples Tallied "
    "TaskFeedback TellsTrained Waiting"
)


def __getattr__(name: str) -> type:
    """Return an empty class for a protocol that plugins may still inherit or import."""
    if name not in _NAMES.split():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = type(name, (), {"__module__": __name__})  # one class for all
    return made
