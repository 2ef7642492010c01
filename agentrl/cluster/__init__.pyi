from .learner_group import Place as Place
from .ranks import follow_torchrun as follow_torchrun
from .server_actor import (
    ServerActor as ServerActor,
    StartedServer as StartedServer,
)
