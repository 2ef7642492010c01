"""Double a number with a tool."""

import verifiers.v1 as vf


class Doubler(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def double(self, number: int) -> int:
        """Twice a number."""
        return 2 * number


class ToolTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Doubler(vf.ToolsetConfig())]

    @vf.reward
    async def correct(self, task, trace) -> float:
        return float(trace.last_reply.strip() == str(2 * int(task.name)))


class ToolTaskset(vf.Taskset[ToolTask, vf.TasksetConfig]):
    def load(self):
        for number in range(10, 20):
            yield ToolTask(vf.TaskData(prompt=f"What is twice {number}?", name=str(number)), self.config.task)


__all__ = ["ToolTaskset"]

if __name__ == "__main__":  # verifiers starts a tool server as the module of its class
    Doubler.run()
