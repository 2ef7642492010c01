"""A run: its settings, folder, state, metrics, rollouts and policies, all of which `agentrl.train.train` uses."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from agentrl.credit import Credit
from agentrl.env import kind_of
from agentrl.evaluate import Finding, Report
from agentrl.files import read_toml, write_atomically
from agentrl.graph import StepGraph, write_graph
from agentrl.rollout import EpisodeRecord
from agentrl.run import checkpoint
from agentrl.run.allocator import keep_freed_memory
from agentrl.run.checkpoint import RunState
from agentrl.run.folder import TASK_KINDS, RunFolder
from agentrl.run.forecast import Forecast, RunPlan, Told, forecast_of, plan_of, spell
from agentrl.run.health import Health, continued
from agentrl.run.known_rows import first_prompt_notes
from agentrl.run.metrics import Metrics, MetricsSink, Stopwatch, check_lines, read_metrics, rewind
from agentrl.run.policies import Policies
from agentrl.run.progress import Now, Progress
from agentrl.run.rollouts import Rollouts
from agentrl.run.spending import asked, dollars_spent
from agentrl.run.start_checks import division_note, leak_note, leaves_report
from agentrl.run.stored_decisions import Decisions
from agentrl.run.teacher import Teacher, teacher_of
from agentrl.run.vocabulary import Vocabulary, vocabularies
from agentrl.settings import Settings, clone_episodes_of, completing, turns_of
from agentrl.tool_env import program_fit, template_fit

IN_REPORTS_ONLY = ("samples", "failures")  # entries of a summary that reports hold and metrics.jsonl does not
NOTES = 10  # largest number of notes on tasks that are left out
NOTHING: Mapping[str, Any] = MappingProxyType({})

MakePolicies = Callable[[Settings, Mapping[str, Vocabulary], Path | None], Policies]
"""Makes the policies that learn, from the arguments of `Policies`."""

MakeTrackers = Callable[[Path, Mapping[str, Any], Callable[[str], None]], MetricsSink]
"""Makes the trackers, from the run's folder, the configuration to show, and a function that prints a sentence."""


@dataclass(kw_only=True, eq=False)
class Run:
    """All parts of a run. `open_run` makes it.

    Attributes:
        settings: the resolved recipe.
        folder: the folder in which the run is stored.
        state: how far the run has come.
        metrics: writes metrics.jsonl and timings.jsonl, and calls the trackers.
        progress: prints what the user sees.
        now: writes now.json, which tells `agentrl watch` what the run does at this moment.
        health: the findings of the health rules in the metrics and in the decisions.
        decisions: the decisions of stored iterations, which the health rule `certain_too_early` examines.
        rollouts, policies: the rollouts, and the policies that learn.
        teacher: adds the teacher's log-probs of the tokens that the policy sampled; None if there is no teacher.
        forecast: the time that the run still takes; `foretold` decides when it is printed.
        told: the reasons that `tell_left_out` has printed.
    """

    settings: Settings
    folder: RunFolder
    state: RunState
    metrics: Metrics
    health: Health
    decisions: Decisions
    progress: Progress
    now: Now
    rollouts: Rollouts
    policies: Policies
    teacher: Teacher | None
    forecast: Forecast = field(default_factory=lambda: Forecast(RunPlan()))
    foretold: Told = field(default_factory=Told)
    told: set[str] = field(default_factory=set)

    @property
    def spent(self) -> float:
        """The largest used share of the run's budgets; 0 if there is none."""
        return self.state.spent(self.settings.tables)

    def iterations(self) -> Iterator[int]:
        """Yields the numbers of the iterations that are not done yet, until the budget of the run is spent."""
        last = self.settings.tables.run.iterations
        for iteration in range(self.state.step, last):
            if self.spent >= 1:
                self.progress.say(f"the budget of the run is spent after {iteration} iterations")
                return
            yield iteration

    def stopwatch(self, work: str, step: int, of: int, episodes: int) -> Stopwatch:
        """A stopwatch for the phases of one piece of work (see `Now.begin`); now.json names the current phase."""
        self.now.begin(work, step, of, episodes)
        return Stopwatch(self.now.phase)

    def sync(self, version: int) -> None:
        """Let rollouts generate with the current weights."""
        self.rollouts.load(self.policies.weights(), version)

    def log(
        self, stage: str, step: int, values: Mapping[str, Any], watch: Stopwatch, beside: Mapping[str, Any] = NOTHING
    ) -> None:
        """Write one line of metrics and one line of timings; apply the rules of health, and renew the forecast.

        `beside` holds further values that only the rules read. If a training service has prices, the line also holds
        what it has cost (`dollars`), and what the run has cost so far (`dollars_spent`).
        """
        paid = self.state.pay({"stage": stage, **values}, self.settings.tables.learner)
        row = self.metrics.log(stage, step, {**values, **paid})
        self.metrics.time(stage, step, watch.seconds)
        self._tell(self.health.add({**row, **beside}))
        self.forecast.add(row, watch.seconds)
        left = self.forecast.left()
        self.now.left = left.parts()
        self.progress.left = "" if left.total is None else f", the run takes about {spell(left.total)} more"
        if line := self.foretold.line(self.forecast, time.monotonic()):
            self.progress.say(line)

    def _tell(self, found: Sequence[Finding]) -> None:
        for finding in found:
            self.progress.say(f"health: {finding.text}")
        if found:
            self.write_health()

    def write_health(self) -> None:
        """Write the findings of the rules of health so far to health.json."""
        write_atomically(self.folder.health, json.dumps(self.health.dump(), indent=1).encode())

    def conclude(self) -> None:
        """Write the findings of the whole run, and name them again in one line for the user."""
        self.write_health()
        if self.state.best.checkpoint:
            self.progress.say(self.state.best.in_words(self.settings.tables.eval.modes[0]))
        named = [f"{one.rule} ({one.stage} {one.iteration})" for one in self.health.found]
        if named:
            self.progress.say(
                f"health: {len(named)} findings: {', '.join(named)}; the sentences are in {self.folder.health}"
            )

    def store(self, iteration: int, graph: StepGraph, credit: Credit, records: Sequence[EpisodeRecord]) -> None:
        """Write the iteration's graph, its credit and the types of its tasks if `run.graphs_every` asks for it.

        The column `credit_weight` [N] is the weight of each step in the credit. The health rule on decisions examines
        the stored graph, and its findings are printed.
        """
        every = self.settings.tables.run.graphs_every
        if every and iteration % every == 0:
            given = np.where(credit.assigned, credit.advantage, np.nan)  # [N]
            stored = _without_old_entropy(graph).with_columns(advantage=given, credit_weight=credit.weight)
            kinds = {record.task.key: kind_of(self.settings.env, record.task) for record in records}
            write_graph(stored, self.folder.graph_path(iteration), {TASK_KINDS: kinds})
            self._tell(self.health.note(self.decisions.add(iteration, stored)))

    def pauses_after(self, iteration: int) -> bool:
        """Is this the last iteration, or is an evaluation or a checkpoint due after this iteration?"""
        tables, done = self.settings.tables, iteration + 1
        return done == tables.run.iterations or _due(tables.eval.every, done) or _due(tables.run.checkpoint_every, done)

    def finish(self, iteration: int) -> None:
        """Count the iteration as done. Then run the evaluation if it is due, and write the checkpoint if it is due."""
        tables = self.settings.tables
        self.state.step = done = iteration + 1
        if _due(tables.eval.every, done) and done < tables.run.iterations:
            self.evaluate(f"iteration {done}", tables.eval.during)
        if _due(tables.run.checkpoint_every, done) or self.state.best.checkpoint == f"{done:06d}":
            self.save()

    def evaluate(self, name: str, tasks: int | None = None) -> None:
        """Evaluate the held-out tasks in every mode, and log and store the results under this name.

        Does nothing if an evaluation of this name was done before. `tasks` is the number of tasks; None: all tasks.
        """
        if name in self.state.evaluated:
            return
        for mode in self.settings.tables.eval.modes:
            due = self.rollouts.eval_tasks[:tasks]
            watch = self.stopwatch(f"evaluation {name} {mode}", self.state.step, 0, len(due))
            self.progress.begins(f"{name}: playing {len(due)} held-out tasks, {mode}")
            bar = self.progress.bar(f"{name}, {mode}", len(due))
            with watch.phase("evaluate"):
                report, graph = self.rollouts.evaluation(mode, due, bar.episodes(0, step=True))
            bar.close()
            if self.settings.tables.run.graphs_every:
                write_graph(graph, self.folder.evaluation_graph_path(f"{name}-{mode}"))
            summary = report.summary()
            self.tell_left_out(summary.get("overlong_prompts", {}))
            low, high = summary["interval"]
            seconds = summary.pop("wall_seconds")
            line = {key: value for key, value in summary.items() if key not in IN_REPORTS_ONLY}
            line |= asked(self.settings, graph)
            self.log("eval", self.state.step, {"name": name, "mode": mode, **line}, watch)
            self.folder.write_report(f"{name}-{mode}", {**summary, "wall_seconds": seconds}, report.outcomes)
            if mode == self.settings.tables.eval.modes[0]:
                self._note_best(name, report)
            differs = abs(summary["mean_reward"] - summary["success_rate"]) > 1e-9
            returns = f", mean return {summary['mean_reward']:.3f}" if differs else ""
            self.progress.say(
                f"{name}: {mode} success {summary['success_rate']:.1%} [{low:.1%}, {high:.1%}]{returns} "
                f"on {summary['episodes']} held-out {summary['benchmark']} tasks (panel {summary['panel']})"
            )
        self.state.evaluated.append(name)

    def _note_best(self, name: str, report: Report) -> None:
        """With `run.keep_best`: compare an evaluation with the best so far. The next checkpoint holds its weights."""
        tables = self.settings.tables
        if not tables.run.keep_best or (name == "start" and tables.warmup.updates):
            return
        checkpoint = f"{self.state.step if self.state.stage == 'train' else 0:06d}"
        common = tables.eval.during if tables.eval.every else len(self.rollouts.eval_tasks)
        best = self.state.best.found(self.folder.path / "checkpoints")
        self.state.best = best.after(checkpoint, name, report, common)

    def tell_left_out(self, reasons: Iterable[str]) -> None:
        """Print a note for each task that is left out because its first prompt does not fit; each note is printed once.

        After `NOTES` notes, nothing more is printed: metrics.jsonl has all of them.
        """
        for reason in (one for one in reasons if one not in self.told):
            self.told.add(reason)
            if len(self.told) <= NOTES:
                more = "; further tasks of this kind are in metrics.jsonl (overlong_prompts)"
                self.progress.say(f"note: a task is left out: {reason}{more if len(self.told) == NOTES else ''}")

    def stop_if_judges_disagree(self) -> None:
        """Compare the verdicts of the held-out judge with those of the judge that the reward reads.

        Raises:
            ValueError: the verdicts differ too much. The run has been saved.
        """
        found = self.rollouts.batches.disagreement
        why = "" if found is None else found.broken()
        if why:
            self.save()
            raise ValueError(why)

    def save(self) -> None:
        """Write a checkpoint of the run as it is now.

        The name of the checkpoint is `clone-STEP` during the warm-up. In training it is the number of done iterations.
        """
        name = f"{self.state.step:06d}" if self.state.stage == "train" else f"clone-{self.state.step:06d}"
        self.metrics.flush()
        self.state.metric_lines, self.state.timing_lines = self.metrics.lines, self.metrics.timing_lines
        parts = {"rollouts": self.rollouts.state_dict(), "policies": self.policies.state_dict()}
        checkpoint.write(self.folder, name, self.policies.save, self.state, self.settings.tables.run.keep, parts)

    def close(self) -> None:
        """Close the metrics, now.json, the folder and the rollouts. A new folder without results is removed."""
        self.metrics.close()
        self.now.close()
        self.folder.drop_if_nothing_came_of_it()
        self.folder.release()
        self.rollouts.close()


def _due(every: int, done: int) -> bool:
    """Is an action that happens every `every` iterations due after `done` iterations? `every` 0 means never."""
    return bool(every) and done % every == 0


def open_run(
    settings: Settings,
    *,
    resume: bool,
    progress: Progress,
    make_policies: MakePolicies = Policies,
    make_rollouts: Callable[[Settings], Rollouts] = Rollouts,
    make_trackers: MakeTrackers | None = None,
) -> Run:
    """A new run, or a run that continues from its last checkpoint.

    The tasks and the folder are checked first, then the models are made, and only then files are written. So a mistake
    in the recipe is reported early, and leaves no files.

    Args:
        settings: settings of the run.
        resume: whether to continue from the last checkpoint, if there is one.
        progress: prints what the user sees.
        make_policies: makes the policies that learn; by default, in this process.
        make_rollouts: makes the rollouts; by default, in this process.
        make_trackers: makes the trackers; by default, there are none.

    Raises:
        ValueError: the run cannot begin or continue with this configuration and this run folder.
    """
    settings = _begun_or_new(settings, resume=resume)
    tables = settings.tables
    _set_up_torch(tables.run.threads, tables.run.seed)
    rollouts = make_rollouts(settings)
    folder = RunFolder(settings.folder, complete=lambda old: completed(old, settings))
    try:
        at = _last_checkpoint(folder, settings, resume=resume)
        rollouts.scores.prepare()
        words = _vocabularies(settings, at, progress)
        fitting = settings if at is not None else fitted(settings, words)
        if fitting is not settings:
            rollouts.close()
            settings, rollouts = fitting, make_rollouts(fitting)
            rollouts.scores.prepare()
        policies = make_policies(settings, words, at)
        long = _speak(settings, rollouts, policies)
        teacher = teacher_of(settings, policies)
        if tables.warmup.updates:
            rollouts.try_expert()
        state = RunState(dollars=dollars_spent(read_metrics(folder.metrics, damaged="skip").rows))
        if at is not None:  # before files are written, because a damaged checkpoint must not change the folder
            state = _restore(at, settings, rollouts, policies, state.dollars)
            progress.say(f"continuing from {at}: {state.stage} step {state.step}")
        version = state.step if state.stage == "train" else 0
        _open_folder(folder, settings, state, at, resume=resume, progress=progress)
        metrics = Metrics(folder, make_trackers and make_trackers(folder.path, settings.shown(), progress.say))
        health = continued(folder.health, read_metrics(folder.metrics).rows, settings)
        rollouts.load(policies.weights(), version)
    except BaseException:
        folder.drop_if_nothing_came_of_it()
        folder.release()
        rollouts.close()
        raise
    for line in [*_notes(settings, rollouts, policies), *long]:
        progress.say(f"note: {line}")
    now = Now(folder.path / "now.json")
    rollouts.on_episode = now.episode
    return Run(
        settings=settings,
        folder=folder,
        state=state,
        metrics=metrics,
        health=health,
        decisions=Decisions(folder, settings.env.hooks.situation, progress.say),
        progress=progress,
        now=now,
        rollouts=rollouts,
        policies=policies,
        teacher=teacher,
        forecast=_forecast(settings, rollouts, folder),
    )


def _forecast(settings: Settings, rollouts: Rollouts, folder: RunFolder) -> Forecast:
    """The forecast of the time that the run takes, from its stored lines if it continues."""
    plan = replace(plan_of(settings.dump(), settings.episodes), tasks=len(rollouts.eval_tasks))
    rows, timings = [read_metrics(path, damaged="skip").rows for path in (folder.metrics, folder.timings)]
    return forecast_of(plan, rows, timings)


def _begun_or_new(settings: Settings, *, resume: bool) -> Settings:
    """The settings of a run that continues, or the checked settings of a new run (ValueError, see `check_new`)."""
    stored = settings.folder / "config.toml"
    if resume and stored.is_file():
        return settings.resuming(read_toml(stored))
    settings.check_new()
    return settings


def _without_old_entropy(graph: StepGraph) -> StepGraph:
    """The graph without the token column that only the update reads."""
    tokens = graph.tokens
    if tokens is None or "old_entropy" not in tokens.columns:
        return graph
    kept = {name: column for name, column in tokens.columns.items() if name != "old_entropy"}
    return replace(graph, tokens=replace(tokens, columns=kept))


def _speak(settings: Settings, rollouts: Rollouts, policies: Policies) -> list[str]:
    """Give the rollouts the tokenizers of the policies; returns the notes on rows whose first prompts do not fit.

    Raises:
        ValueError: the first prompts of too many rows do not fit.
    """
    rollouts.inference.speak(policies.tokenizers)
    chat = rollouts.inference.chats[rollouts.main.policy]
    return first_prompt_notes(settings, rollouts.tasks, rollouts.eval_tasks, lambda: chat)


def _set_up_torch(threads: int, seed: int) -> None:
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(seed)
    keep_freed_memory()


def _last_checkpoint(folder: RunFolder, settings: Settings, *, resume: bool) -> Path | None:
    """The last checkpoint of the run; None if the run has no checkpoint.

    Raises:
        ValueError: the folder cannot be used (see `RunFolder.refuse`), the run has lost its checkpoints, its last
            checkpoint is damaged, or metrics.jsonl lacks lines that were written before this checkpoint.
    """
    folder.refuse(settings.shown(), resume=resume)
    found = folder.checkpoints()
    if not found:
        folder.check_never_stored()
        return None
    check_lines(folder, checkpoint.read_progress(found[-1]).metric_lines)
    return found[-1]


def _open_folder(
    folder: RunFolder,
    settings: Settings,
    state: RunState,
    at: Path | None,
    *,
    resume: bool,
    progress: Progress,
) -> None:
    """Write the configuration, and remove the lines of metrics and timings that are newer than the checkpoint `at`."""
    folder.open(settings.shown(), resume=resume, recipe=settings.recipe)
    if folder.killed:
        progress.say(
            f"note: process {folder.killed}, which trained this run before, was killed; if the machine had no memory "
            "left, set a lower update.max_tokens, which --resume accepts"
        )
    if at is None and folder.metrics.exists():
        progress.say(f"{folder.path} was stopped before its first checkpoint: the run starts from the beginning")
    rewind(folder, state.metric_lines, state.timing_lines)


def completed(stored: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """A stored configuration with the defaults of newer options, in the form of `Settings.shown`.

    Hidden values of the stored configuration are taken from `settings`.
    """
    return completing(settings, stored).shown()


def _vocabularies(settings: Settings, at: Path | None, progress: Progress) -> dict[str, Vocabulary]:
    """The vocabularies of models that are made from scratch, by policy.

    Empty if every model is loaded, because a loaded model has a tokenizer. A checkpoint of adapters does not replace
    the base model: a new base model is made again, and needs its vocabulary again.
    """
    models = [plan.model for plan in settings.policies.values()]
    if (at is not None and all(model.lora is None for model in models)) or all(model.new is None for model in models):
        return {}
    with progress.preparing(f"preparing: episodes of {settings.tables.warmup.expert}, for the words of the model"):
        return vocabularies(settings)


def fitted(settings: Settings, words: Mapping[str, Vocabulary]) -> Settings:
    """The settings with `limits.turns` and `warmup.episodes` computed from the episodes that the expert has played.

    The number of turns follows from the longest episode. The number of episodes per update of the warm-up follows from
    the mean length of the texts, not from a measured time, so the same seed gives the same bytes. Options that the
    recipe sets stay; `warmup.episodes` also stays if the recipe sets `warmup.updates`. If no expert has played, the
    settings are returned unchanged.
    """
    longest = max((one.turns for one in words.values()), default=0)
    if not longest:
        return settings
    turns, length = turns_of(longest), max(one.length for one in words.values())
    values, notes = {"limits.turns": turns}, {}
    notes["limits.turns"] = f"limits.turns = {turns}: the expert's longest episode has {longest} turns"
    if "warmup.updates" in settings.chosen:
        episodes = values["warmup.episodes"] = clone_episodes_of(length, settings.tables.warmup.minibatches)
        notes["warmup.episodes"] = f"warmup.episodes = {episodes}: an episode of the expert has about {length} words"
    found = settings.fitted(values)
    changed = [
        notes[path] for path in values if path in settings.chosen and found.chosen[path] != settings.chosen[path]
    ]
    if changed:
        found.notes = [*settings.notes, *changed]
    return found


def _restore(at: Path, settings: Settings, rollouts: Rollouts, policies: Policies, paid: float) -> RunState:
    """Load policies and rollouts from the checkpoint `at`; return the run's state, with `paid` dollars."""
    stored = policies.restore(at)
    try:
        policies.load_state_dict(stored.parts["policies"])
        rollouts.load_state_dict(stored.parts["rollouts"])
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise checkpoint.of_another_run(at / "state.pt", error) from None
    state, limits = stored.progress, settings.tables.run
    if state.stage == "train":
        policies.end_with(limits.iterations)  # so that the schedule ends with the extended run
    state.dollars = max(state.dollars, paid)  # also for iterations that are done again
    more = state.step < limits.iterations and state.spent(settings.tables) < 1
    if state.stage == "train" and more and "end" in state.evaluated:
        state.evaluated.remove("end")  # a finished run was given more iterations, or a larger budget
    return state


def _notes(settings: Settings, rollouts: Rollouts, policies: Policies) -> Sequence[str]:
    """The notes for the user that are printed before the run starts, each note one time."""
    lines = list(settings.notes)
    for agent in rollouts.agents.values():
        chat = rollouts.inference.chats[agent.policy]
        lines += (template_fit(chat, agent.prompt) if agent.program is None else program_fit(chat)).splitlines()
    lines += [*policies.notes(), leaves_report(settings), leak_note(settings.env), division_note(rollouts.tasks)]
    return [line for line in dict.fromkeys(lines) if line]
