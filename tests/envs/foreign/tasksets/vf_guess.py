"""Guess a number: the environment is the user, who says higher or lower."""

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    pass


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        number = 0
        while True:
            yield GuessTask(GuessData(prompt="Guess a number from 0 to 9.", number=number % 10, name=f"task {number}"))
            number += 1


class GuessEnvConfig(vf.EnvConfig):
    guesser: vf.AgentConfig = vf.AgentConfig()


TRIED = []  # of every episode of a process


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task, agents):
        score = 0.0
        async with agents.guesser.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(3):
                said = segment.last_reply.strip()
                TRIED.append(said)
                if said == "crash":
                    raise RuntimeError("no such number")
                if said == str(task.data.number):
                    score = 1.0
                    break
                higher = said.isdigit() and int(said) < task.data.number
                segment = await interaction.turn(f"{len(TRIED)}: {'higher' if higher else 'lower'}")
        interaction.trace.record_reward("found", score)


__all__ = ["GuessEnv", "GuessTaskset"]
