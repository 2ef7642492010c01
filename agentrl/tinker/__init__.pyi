from .learner import ServedPolicy as ServedPolicy, ServiceLearner as ServiceLearner
from .policies import ServicePolicies as ServicePolicies
