"""Catalogue `agentrl.algorithms.regularizer`: terms beside the policy loss, with state if they need any; one file per
entry (see `agentrl.trainer.regularizer`). Switched on by `[[update.regularizers]]` in a recipe."""
