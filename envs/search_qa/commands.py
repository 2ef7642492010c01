"""The verbs of `agentrl envs search_qa`."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.cli import Parser, seed
from agentrl.env import published_report
from agentrl.envs.search_qa.encyclopaedia import LEVELS, SPLITS, world
from agentrl.envs.search_qa.experts import EXPERTS
from agentrl.envs.search_qa.published import FETCH, FILES
from agentrl.envs.search_qa.questions import questions
from agentrl.files import write_atomically


def about(words: Sequence[str]) -> int:
    """What worlds there are, and how to bring questions of your own."""
    parser = Parser("agentrl envs search_qa", about.__doc__)
    parser.add_argument("data", nargs="?", default="", help="data=DIR, a folder of the published files")
    data = str(parser.parse_args(list(words)).data).removeprefix("data=")
    folder = Path(data).expanduser() if data else None
    if folder is not None and not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; give the folder of the published files")
    print("embedded worlds (search-gen), nothing to download: world=")
    for name, level in LEVELS.items():
        made, asked = world(name, 0), questions(name, 0)
        counts = ", ".join(f"{split} {len(asked[split])}" for split in SPLITS)
        print(
            f"  {name:7} {len(made.passages):5} passages, {level.hops[0]} to {level.hops[1]} facts per question, "
            f"{counts}"
        )
    print("questions of your own: data=FILE.parquet or FILE.jsonl, and a retriever:")
    print(
        "  a row has `question` and `golden_answers` (or the columns of NQ, TriviaQA, PopQA, SQuAD, MuSiQue, HotpotQA)"
    )
    print("  retriever={name='search', bm25={corpus='FILE.jsonl'}}  (agentrl serve retriever serves one to others)")
    print("  retriever={name='search', backend='http', http={urls=['http://127.0.0.1:8000/retrieve']}}")
    print(
        f"published questions and corpus ({folder or 'not named here: agentrl envs search_qa data=DIR looks there'}):"
    )
    for line in published_report(folder, FILES):
        print(f"  {line}")
    print("to get them, on a machine with a network (then copy DIR here; 70 GB to fetch, 135 GB unpacked):")
    for line in FETCH:
        print(f"  {line}")
    print(f"players of a world: {', '.join(EXPERTS)}")
    print("write a world's corpus and questions as files: agentrl envs search_qa write --help")
    return 0


def write(words: Sequence[str]) -> int:
    """Write a world's corpus.jsonl and the questions of each split, for other retrievers and trainers."""
    parser = Parser("agentrl envs search_qa write", write.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world", default="small", choices=list(LEVELS))
    parser.add_argument("--seed", type=seed, default=0)
    given = parser.parse_args(list(words))
    corpus = [{"id": p.id, "contents": p.contents} for p in world(given.world, given.seed).passages]
    _put(given.folder / "corpus.jsonl", corpus)
    for split, asked in questions(given.world, given.seed).items():
        rows = (
            {"id": f"{number:05}", "question": q.words, "golden_answers": list(q.answers), "chain": list(q.chain)}
            for number, q in enumerate(asked)
        )
        _put(given.folder / f"{split}.jsonl", rows)
    print(f"{len(corpus)} passages and their questions in {given.folder}", file=sys.stderr)
    return 0


def _put(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
