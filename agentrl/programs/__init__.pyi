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
from .endpoint import Endpoint as Endpoint
from .evaluated_policy import Contestant as Contestant
from .policy import Guests as Guests
from .recorder import Recorder as Recorder
