"""Sums: two rewards and a metric."""

import verifiers.v1 as vf


class SumsConfig(vf.TasksetConfig):
    count: int = 40


class SumsData(vf.TaskData):
    answer: str


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def correct(self, task, trace) -> float:
        return float(trace.last_reply.strip() == task.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 4)

    @vf.metric
    async def letters(self, trace) -> float:
        return len(trace.last_reply)


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    def load(self):
        for i in range(self.config.count):
            yield SumsTask(
                SumsData(prompt=f"{i} + 1 =", system_prompt="Say the sum.", answer=str(i + 1)), self.config.task
            )


__all__ = ["SumsTaskset"]
