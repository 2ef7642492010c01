"""Programs as agents: a user's program plays a task through an OpenAI-compatible endpoint, unchanged.

Everything the program asks the endpoint becomes a step of the episode: with the exact token ids that were sampled,
their log-probs, and the context that each prompt continues.
"""

from agentrl.rollout.program.definition import AgentTask, Program, program_path

__all__ = ["AgentTask", "Program", "program_path"]
