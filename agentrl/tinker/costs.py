"""An estimate of what a run costs at a training service, before it starts and while it goes on.

Formula, for an episode of n turns with prompts p_1 ... p_n and answers of a tokens: the service reads sum(p_t) tokens
of prompts, samples n a, and a training pass reads the episode's sequences. A chat that only grows is one sequence of
p_n + a tokens, and a cache of prefixes leaves p_n of the prompts to read; other contexts write a sequence of p_t + a
tokens per turn. An update reads every sequence in these passes:

    backward   update.epochs
    forward    one before the update, and the rows of each mini-batch after the first optimiser step; with
               update.old_logprob=engine, the rows of each mini-batch

With update.kl_coef > 0 the reference model reads every sequence, as a prompt.

Before the first iteration, the number of turns and the length of texts are not known. The estimate then assumes
episodes as long as the recipe allows, so most runs cost less. As soon as lines of metrics have counts, these replace
the assumptions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from agentrl.chat import Chat
from agentrl.env import clipped, deadline, prompt_of, tasks_of
from agentrl.rollout import first_prompt
from agentrl.run import Usage, dollars_spent, finite_number, held_out_tasks, plan_of, usage_of
from agentrl.settings import Settings
from agentrl.trainer.sections import BILLED, UpdateConfig
from agentrl.types import Message

RESET_S = 30.0  # seconds that making an environment and beginning a task may take
BYTES = 4  # bytes of text per token, where the tokenizer is not on this machine
LATELY = 20  # number of the newest lines of metrics whose mean is the forecast
SHORTEST = 16  # tokens per answer; an episode has fewer turns rather than shorter answers
TURNS = ("max_steps", "max_turns")  # options of environments for the largest number of steps of an episode


class FirstLengths(NamedTuple):
    """Numbers of tokens at the beginning of the first task.

    Attributes:
        prompt: the first prompt.
        observation: the first observation, as the prompt writes it in a later turn.
        counted: were they counted by the tokenizer? If not, they are guessed from the length of the texts.
    """

    prompt: int
    observation: int
    counted: bool


class LongestEpisode(NamedTuple):
    """An episode that is as long as the limits of a recipe allow.

    Attributes:
        turns: number of turns.
        answer: number of tokens per answer.
        usage: what it asks of the service; `trained` is the number of tokens of its sequences.
    """

    turns: int
    answer: int
    usage: Usage


class RunUsage(NamedTuple):
    """What the parts of a run ask of the service.

    Attributes:
        update: an update of the warm-up.
        iteration: an iteration of training.
        evaluations: all evaluations that are still to come.
        updates, iterations: numbers of updates of the warm-up and of iterations that are still to come; a budget of
            tokens may end the run inside an iteration.
        played: number of evaluations that are still to come.
    """

    update: Usage
    iteration: Usage
    evaluations: Usage
    updates: int
    iterations: float
    played: int

    @property
    def whole(self) -> Usage:
        """All that is still to come."""
        training = self.update.times(self.updates).plus(self.iteration.times(self.iterations))
        return training.plus(self.evaluations)


def cost_lines(
    settings: Settings, chat: Chat | None, rows: Sequence[Mapping[str, Any]] = (), spent: float = 0.0
) -> list[str]:
    """The estimate in sentences, with the assumptions behind it.

    Args:
        settings: the run's settings.
        chat: the tokenizer of the main agent's policy; None if it is not on this machine.
        rows: the lines of metrics of a run that goes on; empty for a new run.
        spent: dollars that the run has counted so far, if they may be more than the lines say: a run that continues
            from a checkpoint has removed the lines after it.
    """
    known = measured(settings, rows)
    if known is not None:
        spent = max(spent, dollars_spent(rows))
        left = known.iterations or known.played
        lines = _totals(settings, known, "measured", repeated_in(rows), spent)
        return [*(lines if left else ()), *_spent(settings, spent)]
    if next(iter(settings.agents.values())).program is not None:
        return ["costs are not known before the first iteration, because a program writes its own prompts"]
    lengths = first_lengths(settings, chat)
    if lengths is None:
        return ["costs are not known before the first iteration, because the first task does not begin here"]
    episode = longest_episode(settings, lengths)
    totals = _totals(settings, assumed(settings, episode), "estimated", repeated(settings))
    return [*totals, _assumptions(settings, lengths, episode)]


def first_lengths(settings: Settings, chat: Chat | None) -> FirstLengths | None:
    """The lengths at the beginning of the first training task; None if it does not begin."""
    entry = settings.env
    try:
        with deadline(RESET_S), closing(entry.hooks.make(entry.config)) as env:
            shown = env.reset(tasks_of(entry)[0])
        observation = clipped(shown, settings.tables.limits.output_chars)
        prompt = prompt_of(entry)
        ask, later = first_prompt(settings.context, prompt, chat, observation), prompt.turn(observation)
    except Exception:  # noqa: BLE001  an environment may raise anything; `agentrl.run` reports it
        return None
    if chat is not None:
        return FirstLengths(len(ask.token_ids), _added(chat, later), counted=True)
    texts = sum(len(message.content.encode(errors="replace")) for message in ask.messages)
    return FirstLengths(texts // BYTES + 1, len(later.encode(errors="replace")) // BYTES + 1, counted=False)


def _added(chat: Chat, text: str) -> int:
    """Number of tokens that a text adds to a chat as the user's next message, marks of the template included."""
    user, answer = Message("user", text), Message("assistant", "a")
    return len(chat.start([user, answer, user], ())) - len(chat.start([user], ())) - 1


def longest_episode(settings: Settings, lengths: FirstLengths) -> LongestEpisode:
    """The episode that takes all turns of the recipe, with observations as long as the first and the longest answers.

    If such a chat is longer than `engine.max_context`, all answers are shorter, so that it fits; if they would have
    fewer than SHORTEST tokens, the episode has fewer turns.
    """
    tables = settings.tables
    longest = min(tables.sampling.max_tokens, tables.limits.turn_tokens)
    grows, window = settings.context.name == "full", getattr(settings.context.config, "k", None)
    turns, answer = _turns(settings), 0
    while not answer:
        past = turns - 1 if window is None else min(turns - 1, window)
        fitting = (settings.engine.config.max_context - lengths.prompt - past * lengths.observation) // (past + 1)
        most = (tables.limits.episode_tokens or longest * turns) // turns
        if min(fitting, most) >= min(longest, SHORTEST) or turns == 1:
            answer = max(1, min(longest, fitting, most))
        turns -= 0 if answer else 1
    usage, before = Usage(), 0
    for turn in range(turns):
        past = turn if window is None else min(turn, window)
        prompt = lengths.prompt + past * (answer + lengths.observation)
        read = prompt + answer - before if grows else prompt + answer
        usage = usage.plus(Usage(prompt, before if grows else 0, answer, read))
        before = prompt + answer
    return LongestEpisode(turns, answer, usage)


def _turns(settings: Settings) -> int:
    own = [getattr(settings.env.config, name, None) for name in TURNS]
    return min([settings.tables.limits.turns, *(one for one in own if isinstance(one, int) and one > 0)])


def passes(update: UpdateConfig) -> float:
    """How often an update reads every sequence; see the module."""
    steps = update.epochs * update.minibatches
    trainer = update.old_logprob == "trainer"
    forward = 1 + (steps - 1) / update.minibatches if trainer else steps / update.minibatches
    return update.epochs + forward


def repeated(settings: Settings) -> float:
    """How often a token of a branched episode is sent on average, because the service reads every path as a whole.

    1 without branches. The branches of a task are counted as one tree, and begin in the middle of the episode.
    """
    leaves = settings.episodes / settings.tables.batch.tasks
    return leaves / (1 + (leaves - 1) / 2) if "tree" in settings.rollout.hooks.fills else 1.0


def assumed(settings: Settings, episode: LongestEpisode) -> RunUsage:
    """What a new run asks of the service, if every episode is this one."""
    tables, one = settings.tables, episode.usage
    alone = one._replace(trained=0.0)
    sampled = one.sampled * settings.episodes
    share = min(1.0, tables.batch.tokens / sampled) if tables.batch.tokens else 1.0
    reference = one.trained if tables.update.kl_coef > 0 else 0.0
    played = one._replace(prefill=one.prefill + reference, trained=one.trained * passes(tables.update))
    iteration = played.times(settings.episodes * share)
    update = Usage(trained=one.trained * 2 * tables.update.epochs * tables.warmup.episodes)
    iterations = float(tables.run.iterations)
    if tables.run.tokens:
        iterations = min(iterations, tables.run.tokens / iteration.sampled)
    tasks = list(_evaluations(settings, 0, iterations))
    return RunUsage(update, iteration, alone.times(sum(tasks)), tables.warmup.updates, iterations, len(tasks))


def _evaluations(settings: Settings, done: int, iterations: float, evaluated: Sequence[str] = ()) -> Iterator[int]:
    """Yields the number of tasks of each evaluation that is still to come, in each mode.

    Args:
        settings: the run's settings.
        done: number of iterations that are done.
        iterations: number of iterations at which training ends.
        evaluated: names of the evaluations that were played.
    """
    chosen, updates, tasks = settings.tables.eval, settings.tables.warmup.updates, _held_out(settings)
    whole = [name for name in ("start", *(["clone"] if updates else []), "end") if name not in evaluated]
    between = [at for at in range(done + 1, int(iterations)) if chosen.every and at % chosen.every == 0]
    for _ in chosen.modes:
        yield from [tasks] * len(whole)
        yield from [min(tasks, chosen.during)] * len(between)


def _held_out(settings: Settings) -> int:
    """Number of held-out tasks; `eval.tasks` if they are not on this machine."""
    try:
        return len(held_out_tasks(settings))
    except (ValueError, OSError):
        return settings.tables.eval.tasks


def measured(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> RunUsage | None:
    """What the rest of a run asks of the service, from its lines of metrics; None before the first iteration."""
    train = [row for row in rows if row["stage"] == "train"]
    if not train:
        return None
    iteration = _mean([usage_of(row) for row in train[-LATELY:]])
    evaluations = [(usage_of(row), row.get("episodes")) for row in rows if row["stage"] == "eval"]
    tasks = sum(count for _, count in evaluations if isinstance(count, int))
    each = _mean([usage for usage, _ in evaluations]).times(len(evaluations) / tasks) if tasks else Usage()
    done = int(train[-1]["step"]) + 1
    plan = plan_of(settings.dump(), settings.episodes)
    left = float(max(0, plan.iterations - done))
    sampled = sum(usage_of(row).sampled for row in train)
    if plan.tokens and iteration.sampled:
        left = min(left, max(0.0, (plan.tokens - sampled) / iteration.sampled))
    names = [str(row.get("name", "")) for row in rows if row["stage"] == "eval"]
    names = [name for name in names if name != "end" or not left]  # a run that goes on ends again
    due = list(_evaluations(settings, done, done + left, ["start", "clone", *names]))
    return RunUsage(Usage(), iteration, each.times(sum(due)), 0, left, len(due))


def _mean(usages: Sequence[Usage]) -> Usage:
    total = Usage()
    for one in usages:
        total = total.plus(one)
    return total.times(1 / max(1, len(usages)))


def repeated_in(rows: Sequence[Mapping[str, Any]]) -> float:
    """The same ratio in the newest iterations, of which one without a gradient has 1; 1 if no line has it."""
    trained = [row for row in rows if row["stage"] == "train"][-LATELY:]
    named = [key for row in trained for key in row if key.rpartition("/")[2] == "repeated_prefixes"]
    found = [ratio for row in trained for key in {*named} if (ratio := finite_number(row.get(key))) is not None]
    return sum(found) / len(found) if found else 1.0


def _totals(settings: Settings, run: RunUsage, how: str, factor: float, spent: float = 0.0) -> Iterator[str]:
    """Yields the sentences on an iteration, on the whole run, and on dollars.

    Args:
        settings: the run's settings.
        run: what the run asks of the service.
        how: where the numbers come from.
        factor: how often a token is sent in an update on average.
        spent: dollars that are spent already.
    """
    again = f"; shared prefixes are sent again in updates (x{factor:.2f})" if factor > 1.005 else ""
    yield f"costs, {how}: an iteration of {settings.episodes} episodes {_in_words(run.iteration)}{again}"
    parts = [f"{run.updates} updates of the warm-up"] if run.updates else []
    parts += [f"{run.iterations:.4g} iterations", f"{run.played} evaluations"]
    rest = "the run" if how == "estimated" else "the rest of the run"
    yield f"costs, {how}: {rest} ({', '.join(parts)}) {_in_words(run.whole)}"
    prices = settings.tables.learner
    if not prices.priced:
        missing = [f"learner.{name}" for name in BILLED if getattr(prices, name) is None]
        yield f"costs in dollars are not computed: set {', '.join(missing)} (dollars per million tokens)"
        return
    yield (
        f"costs, {how}, with the prices of [learner]: {_dollars(settings, run.iteration)} per iteration, "
        f"{_dollars(settings, run.whole)} for {rest}{_ends(settings, run, spent)}"
    )


def _ends(settings: Settings, run: RunUsage, spent: float) -> str:
    """After how many further iterations the budget ends the run; empty if it does not."""
    prices = settings.tables.learner
    each = run.iteration.dollars(prices)
    if prices.budget is None or not each:
        return ""
    others = run.evaluations.plus(run.update.times(run.updates)).dollars(prices)
    left = max(0.0, (prices.budget - spent - others) / each)
    return (
        f"; learner.budget = {prices.budget:g} ends it after about {left:.3g} iterations"
        if left < run.iterations
        else ""
    )


def _in_words(usage: Usage) -> str:
    """The counts of tokens as a part of a sentence; with a cache, only the tokens that are not in it are read."""
    words = f"samples {_count(usage.sampled)}, reads prompts of {_count(usage.prefill)}"
    cache = f" ({_count(usage.prefill - usage.cached)} with a cache of prefixes)" if usage.cached else ""
    return f"{words}{cache} and trains {_count(usage.trained)} tokens"


def _count(tokens: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return f"{tokens:.0f}"


def _dollars(settings: Settings, usage: Usage) -> str:
    """The price; if a cache makes a difference, with and without it."""
    prices = settings.tables.learner
    least, most = usage.dollars(prices), usage._replace(cached=0.0).dollars(prices)
    return f"${most:,.2f}" if f"{least:,.2f}" == f"{most:,.2f}" else f"${least:,.2f} to ${most:,.2f}"


def _assumptions(settings: Settings, lengths: FirstLengths, episode: LongestEpisode) -> str:
    """What an estimate before the first iteration assumes, and what it leaves out."""
    guessed = "" if lengths.counted else f" (guessed as {BYTES} bytes per token: the tokenizer is not on this machine)"
    left_out = [
        *(["the calls of other agents"] if len(settings.agents) > 1 else []),
        *(["groups that the sampler filters out"] if settings.sampler.hooks.keep else []),
        *(["probes and candidates"] if {*settings.rollout.hooks.fills} - {"tree"} else []),
        "checkpoints and their storage",
    ]
    return (
        f"costs are estimated for episodes of {episode.turns} turns, the most that the recipe allows, with answers of "
        f"{episode.answer} tokens and, as in the first task, a first prompt of {lengths.prompt} and observations of "
        f"{lengths.observation} tokens{guessed}; not counted: {', '.join(left_out)}"
    )


def _spent(settings: Settings, spent: float) -> Iterator[str]:
    """Yields a sentence on the dollars of the run so far; nothing without prices."""
    prices = settings.tables.learner
    if prices.priced:
        of = "" if prices.budget is None else f" of learner.budget = {prices.budget:g}"
        yield f"costs so far: ${spent:,.2f}{of}"
