from .adapters import SharedBase as SharedBase
from .checkpoints import Checkpoints as Checkpoints
from .limits import ServiceLimits as ServiceLimits
from .protobuf_form import messages as messages
from .sampling import SnapshotEngine as SnapshotEngine
from .server import (
    TrainingHandler as TrainingHandler,
    serve_trainer as serve_trainer,
)
from .service import TrainingService as TrainingService
from .trained_model import TrainedModel as TrainedModel
from .verbs import (
    AdapterPlan as AdapterPlan,
    PassWork as PassWork,
    SampleWork as SampleWork,
)
