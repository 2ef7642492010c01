"""A training server: agentrl's learner and embedded engine behind the protocol of the Tinker SDK.

Clients send token sequences; the server holds one base model and, per model that a client trains, LoRA adapters and an
optimiser. Verbs: `forward`, `forward_backward` (gradients add up), `optim_step`, samplers of the current weights,
checkpoints (docs/serve-trainer.md).
"""

from agentrl.extras import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
