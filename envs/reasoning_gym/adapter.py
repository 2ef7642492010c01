"""Plays reasoning_gym in the Python that has it; see `agentrl.foreign.adapter_client`. No import of agentrl here."""

from __future__ import annotations

import hashlib
import inspect
import re
import signal
from typing import Any, NoReturn

PACKAGES = {"reasoning_gym": "reasoning-gym"}
TRIES = 200  # largest number of questions that are drawn to find one of the split
TEST_SHARE = 5  # on average, one question in five is a test question
SCORE_S = 10.0  # seconds; a verifier that takes longer has failed on the answer
EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\((?!entry\[|metadata\[)")  # calls that run the answer


def load(options: dict[str, Any]) -> dict[str, Any]:
    """The options; ValueError if a dataset, a level or `trust` is wrong."""
    from reasoning_gym.factory import CURRICULA, DATASETS

    for name in options["datasets"]:
        if name not in DATASETS or name == "composite":
            raise ValueError(f"env.datasets: reasoning_gym has no dataset {name!r}{_near(name, DATASETS)}")
        if not options["trust"] and EVALUATES.search(inspect.getsource(DATASETS[name][0].score_answer)):
            raise ValueError(
                f"reasoning_gym's verifier of {name} evaluates the answer as Python code, outside any sandbox: set "
                "env.trust=true if what the model writes may run on this machine, or leave the dataset out"
            )
        if options["levels"] and name not in CURRICULA:
            raise ValueError(f"env.levels: {name} has no curriculum in reasoning_gym: leave levels out")
        for level in options["levels"]:
            top = max(len(one.levels) for one in CURRICULA[name]().attributes.values()) - 1
            if not 0 <= level <= top:
                raise ValueError(f"env.levels: {name} has the levels 0 to {top}, not {level}")
    return options


def _near(name: str, known: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 3)
    return f": did you mean {' or '.join(close)}?" if close else f": it has {len(known)}, such as chain_sum"


def is_test(question: str) -> bool:
    """Does the question belong to the test split? Its text alone decides, so no question is in both splits."""
    return hashlib.sha256(question.encode()).digest()[0] % TEST_SHARE == 0


class Late(BaseException):
    """A verifier took too long. This is a BaseException, because verifiers catch every Exception."""


class Episode:
    """One question, one answer, scored by the dataset's own verifier."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def examine(self) -> None:
        """Draw a question of each dataset and level, so that wrong options are found before anything is played."""
        for name in self.options["datasets"]:
            for level in self.options["levels"] or [None]:
                self._draw(0, {"dataset": name, "level": level, "split": "train"})

    def reset(self, seed: int, params: dict[str, Any]) -> dict[str, Any]:
        """Draw the question of a seed."""
        self.seed, self.params = seed, params
        self.dataset, self.entry = self._draw(seed, params)
        return {"text": self.entry["question"]}

    def step(self, action: str) -> dict[str, Any]:
        """Score an answer. If the verifier fails, the score is 0 and the signal `verifier_failed` is 1."""
        signals = {"verifier_failed": 0.0}
        try:
            score = self._score(action)
        except (Exception, Late) as error:  # noqa: BLE001  if the verifier cannot read the answer, the answer is wrong
            score, signals["verifier_failed"] = 0.0, 1.0
            failure = f"{type(error).__name__}: {error}"[:200]
        signals["score"] = score
        info = {"success": score >= 1.0, "score": score, "signals": signals}
        text = f"The answer scores {score:g}."
        if signals["verifier_failed"]:
            info["status"], text = "tool_error", f"The answer cannot be read ({failure})."
        elif not action:
            info["status"] = "parse_error"
        return {"observation": {"text": text}, "reward": score, "terminated": True, "truncated": False, "info": info}

    def _score(self, action: str) -> float:
        def late(number: int, frame: object) -> NoReturn:
            raise Late(f"the verifier took more than {SCORE_S:g} s")

        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, SCORE_S)
        try:
            return float(self.dataset.score_answer(action or None, self.entry))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def answer(self) -> str:
        """The dataset's own answer; ValueError if it gives none."""
        return self._answer_of(self.entry)

    def wrong_answer(self, seed: int) -> str:
        """The answer to another question of the same kind, which may be right by chance."""
        return self._answer_of(self._draw(self.seed + 1 + seed, self.params)[1])

    def _answer_of(self, entry: dict[str, Any]) -> str:
        if entry["answer"] is None:
            raise ValueError(f"reasoning_gym gives no answer to {self.params['dataset']}: it has no demonstrator")
        return str(entry["answer"])

    def _draw(self, seed: int, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name, wanted = params["dataset"], params["split"] == "test"
        for attempt in range(TRIES):
            drawn = hashlib.sha256(f"{name}/{params['level']}/{seed}/{attempt}".encode()).digest()
            dataset = self._dataset(name, params["level"], int.from_bytes(drawn[:4], "big") >> 1)
            entry = dataset[0]
            if is_test(entry["question"]) == wanted:
                return dataset, entry
        raise ValueError(
            f"{name} has too few questions under these options: none of {TRIES} belongs to the {params['split']} split"
        )

    def _dataset(self, name: str, level: int | None, seed: int) -> Any:
        from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
        from reasoning_gym.factory import CURRICULA, DATASETS

        make, config_class = DATASETS[name]
        options = {**self.options["options"], "seed": seed, "size": 1}
        try:
            if level is None:
                config = config_class(**options)
            else:
                curriculum = CURRICULA[name]()
                curriculum.set_global_level(level)
                context = DefaultCurriculumContext(RangeAttributeMode.UPPER_BOUND)
                config = curriculum.generate_configuration(options, context)
            return make(config=config)
        except (AssertionError, TypeError, ValueError) as error:
            given = {**self.options["options"], "level": level}
            raise ValueError(f"env.options: {name} refuses {given}: {' '.join(str(error).split())[:200]}") from None
