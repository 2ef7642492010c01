"""Two agents: refused."""

import verifiers.v1 as vf
from vf_sums import SumsTaskset


class PairEnvConfig(vf.EnvConfig):
    left: vf.AgentConfig = vf.AgentConfig()
    right: vf.AgentConfig = vf.AgentConfig()


class PairEnv(vf.Env[PairEnvConfig]):
    async def run(self, task, agents):
        await agents.left.run(task)


__all__ = ["PairEnv", "SumsTaskset"]
