"""Cases in which several processes must change a learner as one process does, run under any number of ranks.

`python -m tests.trainer.ranks_of_learners STORE RANK SIZE OUT CASE...` is one of SIZE processes that share each
learner; rank 0 writes OUT/CASE.pt.
"""

import gc
import json
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig

from agentrl.chat import build_word_tokenizer
from agentrl.cluster.learner_group import RankPlace, joined
from agentrl.config import resolve
from agentrl.credit import Credit
from agentrl.model import (
    DividedModel,
    Loaded,
    adapters,
    publish,
    publish_adapter,
    save_model,
    shell_of,
    weights_below_adapters,
)
from agentrl.model.sections import Lora
from agentrl.trainer import (
    CriticConfig,
    Learner,
    LearnerConfig,
    OptimConfig,
    Ranks,
    RegularizerFile,
    Regularizers,
    UpdateConfig,
    annotate,
    clone,
    critic_maker,
    fsdp,
    learner_state,
    local_passes,
    trunk_gradient,
    update,
)
from tests.graph.graphs import VOCABULARY, chains, loaded, tiny_model, trees
from tests.toys.entries import loss

MAX_TOKENS = 90  # several micro-batches, an odd number of them in some mini-batches
LOSS = loss("ppo_clip")
BAND = resolve(RegularizerFile, {"name": "entropy_band", "coef": 0.1, "penalty": 1.0, "differentiable": True})


def untied() -> Any:
    """A Llama whose head is not the embedding."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    return AutoModelForCausalLM.from_config(config).double()


def adapted() -> Any:
    """A model with adapters that are not 0."""
    torch.manual_seed(1)
    model = adapters.add_adapters(tiny_model(), Lora(r=4)).double()
    torch.manual_seed(2)
    for _, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def half() -> Any:
    return tiny_model().bfloat16()


class Case:
    """A learner, and what is done with it."""

    def __init__(
        self,
        model: Callable[[], Any] = tiny_model,
        *,
        optim: str = "adamw",
        critic: dict[str, Any] | None = None,
        band: bool = False,
        config: UpdateConfig | None = None,
        **learner: Any,
    ) -> None:
        self.model, self.optim, self.critic, self.band, self.learner = model, optim, critic, band, learner
        self.config = config or UpdateConfig(
            kl_coef=0.1, entropy_coef=0.01, max_tokens=MAX_TOKENS, minibatches=2, epochs=2
        )

    def make(self, ranks: Ranks, *, copied: bool = True) -> tuple[Learner, Regularizers]:
        optim = OptimConfig(name=self.optim, lr=1e-2, muon_lr=1e-2, grad_clip=0.05, schedule="cosine")
        maker = critic_maker(CriticConfig(**self.critic), None, 0) if self.critic else None
        options = LearnerConfig(processes=ranks.size, **self.learner)
        learner = Learner(
            loaded(self.model()), optim, reference=self.config.kl_coef > 0, critic=maker, config=options, ranks=ranks,
            copied=copied,
        )  # fmt: skip
        learner.restart(optim, 10)
        return learner, Regularizers([BAND] if self.band else [])

    def play(self, learner: Learner, regularizers: Regularizers, stages: range = range(3)) -> Iterator[dict[str, Any]]:
        """A cloning update, then annotated updates over chains and trees: 14 optimiser steps; what each stage says."""
        for stage in stages:
            graph = (chains(stage, 7), trees(1, 3), chains(2, 7))[stage]
            rng = np.random.default_rng(stage)
            if stage == 0:
                yield clone(learner, graph, self.config, minibatches=1, seed=0)
            graph, found = annotate(graph, learner, self.config, 1.0)
            yield found
            credit = Credit.of(rng.normal(size=len(graph)))
            if learner.critic is not None:
                credit = Credit.of(credit.advantage, returns=rng.normal(size=len(graph)))
                yield learner.critic.fit(graph, credit, unit="group", max_tokens=MAX_TOKENS, seed=stage)
            beside = trunk_gradient(learner.critic, graph, credit, MAX_TOKENS)
            yield update(
                learner,
                graph,
                credit,
                self.config,
                LOSS,
                temperature=1.0,
                seed=stage,
                regularizers=regularizers,
                beside=beside,
            )
            names = [name for name in ("old_logprob", "ref_logprob") if graph.has_token_column(name)]
            yield {name: float(np.nansum(graph.token_column(name))) for name in names}
            if learner.critic is not None:
                yield {"value": float(np.nansum(graph.column("value")))}


CASES = {
    "tied": Case(),
    "untied": Case(untied),
    "lora": Case(adapted),
    "muon": Case(optim="muon"),
    "band": Case(band=True),
    "head": Case(critic={"model": "head", "lr": 1e-2, "trunk_coef": 0.5, "epochs": 2}),
    "own": Case(untied, critic={"model": "own", "lr": 1e-2, "at": "token"}),
    "checkpointing": Case(checkpointing=True),
    "offload": Case(offload=True),
    "half": Case(half, config=UpdateConfig(max_tokens=MAX_TOKENS, minibatches=2, epochs=2)),
}


def run(name: str, ranks: Ranks, out: Path) -> None:
    """Play a case in full, and write what came of it."""
    learner, regularizers = CASES[name].make(ranks)
    gradients: list[dict[str, torch.Tensor]] = []
    step, idle, run_idle = learner.step, np.zeros(1), local_passes.run_idle

    def noted() -> Any:
        named = learner.network.model.named_parameters()
        gradients.append({key: fsdp.whole(p.grad).clone() for key, p in named if p.grad is not None})
        return step()

    def counted(*words: Any) -> None:
        idle[0] += 1
        run_idle(*words)

    learner.step, local_passes.run_idle = noted, counted  # type: ignore[method-assign]
    try:
        metrics = list(CASES[name].play(learner, regularizers))
        metrics.append(renewed(learner, CASES[name].config))
    finally:
        local_passes.run_idle = run_idle
    learner.gather()
    critic = {} if learner.critic is None else dict(learner.critic.named_parameters())
    values = {key: fsdp.whole(p.detach()) for key, p in critic.items()}
    idle = ranks.total(idle)
    if ranks.leads:
        weights = {key: x.clone() for key, x in learner.generating.state_dict().items()}
        state = {"band": regularizers.state_dict(), "critic": values, "idle": idle}
        torch.save({"weights": weights, "gradients": gradients, "metrics": metrics, **state}, out / f"{name}.pt")


def renewed(learner: Learner, config: UpdateConfig) -> dict[str, float]:
    """The reference of a new stage is the policy of now: their log-probs are apart by nothing."""
    learner.restart(learner.optim, 10)
    graph, _ = annotate(chains(5, 3), learner, config, 1.0)
    if not graph.has_token_column("ref_logprob"):
        return {}
    apart = np.abs(graph.token_column("ref_logprob") - graph.token_column("old_logprob"))
    return {"apart": float(np.nanmax(apart))}


def save(learner: Learner, folder: Path) -> None:
    """What a checkpoint keeps of a learner."""
    learner.gather()
    if learner.ranks.leads:
        torch.save(learner.generating.state_dict(), folder / "weights.pt")
        torch.save(learner.state_dict(), folder / "state.pt")
    if learner.config.divided:
        learner_state.write(learner, folder / "parts")


def half_way(name: str, ranks: Ranks, out: Path) -> None:
    """Play one stage and store it in OUT/NAME, or, if that is there, go on from it and store it in OUT/NAME-end."""
    case, at = CASES[name], out / name
    if not (at / "state.pt").exists():
        learner, regularizers = case.make(ranks)
        list(case.play(learner, regularizers, range(1)))
        if ranks.leads:
            at.mkdir()
        if ranks.size > 1:
            dist.barrier()
        save(learner, at)
        return
    made = case.model

    def stored() -> Any:
        model = made()
        model.load_state_dict(torch.load(at / "weights.pt", weights_only=True))
        return model

    learner, regularizers = Case(stored, optim=case.optim, critic=case.critic, config=case.config).make(ranks)
    learner.load_state_dict(torch.load(at / "state.pt", weights_only=True), at / "parts")
    metrics = list(case.play(learner, regularizers, range(1, 3)))
    learner.gather()
    if ranks.leads:
        torch.save({"weights": learner.generating.state_dict(), "metrics": metrics}, out / f"{name}-end.pt")


def publish_all(model: Any, folder: Path) -> None:
    """Every form in which weights leave a learner: for engines, for checkpoints, adapters alone, and without them."""
    tokenizer = build_word_tokenizer(["go to drawer 1"], [])
    publish(model, tokenizer, folder / "published")
    save_model(Loaded(model, tokenizer), folder / "saved")
    if hasattr(shell_of(model), "get_base_model"):
        publish(model, tokenizer, folder / "base", weights_below_adapters(model))
        publish_adapter(model, folder / "adapter")


def streamed(name: str, ranks: Ranks, out: Path) -> None:
    """Train one stage with an undivided copy on rank 0 and once without; OUT/NAME-copied and OUT/NAME-streamed."""
    with_copy, regularizers = CASES[name].make(ranks)
    without, others = CASES[name].make(ranks, copied=False)
    list(CASES[name].play(with_copy, regularizers, range(1)))
    list(CASES[name].play(without, others, range(1)))
    with_copy.gather()
    most = [0]  # whole tensors that were alive at the same time
    gc.collect()
    gc.freeze()  # the collections below visit what this case makes, and not all modules and tests of the process

    def gathered(names: Sequence[str]) -> Iterator[torch.Tensor]:
        ranks.broadcast(json.dumps(names).encode())
        alive: list[weakref.ref[Any]] = []
        for tensor in without.gathered(names):
            alive.append(weakref.ref(tensor))
            gc.collect()  # a copied layer is a cycle, and holds its adapter's two matrices until it is collected
            most[0] = max(most[0], sum(one() is not None for one in alive))
            yield tensor
            del tensor

    def logits(ids: Sequence[int]) -> torch.Tensor:
        ranks.broadcast(json.dumps([*ids]).encode())
        return without.logits(ids)

    if not ranks.leads:
        assert without.generating is None
        while names := json.loads(ranks.broadcast()):
            if isinstance(names[0], int):
                without.logits(names)
            else:
                for _ in without.gathered(names):
                    pass
        return
    divided = DividedModel(without.generating.shell, without.generating.device, gathered, logits)
    publish_all(with_copy.generating, out / f"{name}-copied")
    publish_all(divided, out / f"{name}-streamed")
    broken = iter(divided.weights())
    next(broken)
    broken.close()  # type: ignore[attr-defined]  # the other ranks do not wait for this one
    ids = [3, 1, 4, 1, 5]
    with torch.no_grad():
        own = with_copy.generating(input_ids=torch.tensor([ids])).logits[0]
    held = divided.copy()
    held.held.update(held.changing())
    publish_all(held, out / f"{name}-held")
    found = {"apart": float((own - divided.logits(ids)).abs().max()), "most": most[0]}
    (out / f"{name}-streamed.json").write_text(json.dumps(found))
    ranks.broadcast(b"[]")


def play_all(ranks: Ranks, out: Path, names: Sequence[str]) -> None:
    """Every case; `half_way:NAME` for `half_way`, `streamed:NAME` for `streamed`."""
    for name in names:
        kind, _, rest = name.rpartition(":")
        {"": run, "half_way": half_way, "streamed": streamed}[kind](rest, ranks, out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = RankPlace(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[2]))
    store = dist.FileStore(sys.argv[1], place.size)  # type: ignore[attr-defined]
    play_all(joined(torch.device("cpu"), place, store), Path(sys.argv[4]), sys.argv[5:])
    dist.destroy_process_group()
