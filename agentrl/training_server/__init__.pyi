from .checkpoints import Checkpoints as Checkpoints
from .protobuf_form import messages as messages
from .service import TrainingService as TrainingService
from .service_limits import ServiceLimits as ServiceLimits
from .shared_base import SharedBase as SharedBase
from .snapshot_engine import SnapshotEngine as SnapshotEngine
from .trained_model import TrainedModel as TrainedModel
from .training_http import (
    TrainingHandler as TrainingHandler,
    serve_trainer as serve_trainer,
)
from .verbs import (
    AdapterPlan as AdapterPlan,
    PassWork as PassWork,
    SampleWork as SampleWork,
)
