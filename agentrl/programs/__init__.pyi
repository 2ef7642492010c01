from .chains import (
    arrange as arrange,
    share_outcome as share_outcome,
)
from .definition import (
    AgentTask as AgentTask,
    Program as Program,
    program_of as program_of,
    program_path as program_path,
)
from .evaluated_policy import EvaluatedPolicy as EvaluatedPolicy
from .recorder import Recorder as Recorder
from .served import Guests as Guests
from .server import ProgramEndpoint as ProgramEndpoint
