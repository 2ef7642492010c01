from .learner_group import (
    LearnerGroup as LearnerGroup,
    Place as Place,
    check_group as check_group,
    group_of as group_of,
)
from .ranks import LeadingPolicies as LeadingPolicies, follow_torchrun as follow_torchrun
from .ray_driver import RayRollouts as RayRollouts
from .server_actor import (
    ServerActor as ServerActor,
    StartedServer as StartedServer,
)
