"""WebShop's speed and memory: steps and resets per CPU second, load time, memory of one more process.

    python benchmarks/webshop.py                         the generated shop of 1,000 products
    python benchmarks/webshop.py --products 100000       raw files of that size, prepared: build, query, mapping

Beside them are the numbers of the original code (commit 64fa2a5, Lucene through Java), measured on one core: 26.6 ms
per step, 280 resets per second, 14 GB and about 140 s to load 1.18 M products per process. CPU seconds are given so
that the load of a shared machine does not matter.
"""

import argparse
import json
import multiprocessing
import platform
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentrl.envs import webshop
from agentrl.envs.webshop import bm25, generate, market, nouns, prepare, store

ORIGINAL = {"ms_per_step": 26.6, "resets_per_s": 280.0, "resident_gb": 14.0}


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def random_walk(config: webshop.Config, steps: int) -> None:
    """Random clicks and suggested searches, a new goal after each purchase."""
    env, tasks, rng = webshop.make(config), webshop.tasks(config), random.Random(0)
    observation = env.reset(tasks[0])
    for _ in range(steps):
        if not observation.actions:
            observation = env.reset(tasks[rng.randrange(len(tasks))])
        observation, _, done, *_ = env.step(rng.choice(observation.actions))
        if done:
            observation = env.reset(tasks[rng.randrange(len(tasks))])


def resets(config: webshop.Config, times: int) -> None:
    """Resets over all goals."""
    env, tasks = webshop.make(config), webshop.tasks(config)
    for number in range(times):
        env.reset(tasks[number % len(tasks)])


def small(steps: int) -> dict[str, Any]:
    """The generated shop."""
    config = webshop.Config(split="all", max_steps=None)
    load = cpu_s(lambda: market.open_market(config).catalogue.postings)
    random_walk(config, steps // 10)
    step_s = cpu_s(lambda: random_walk(config, steps)) / steps
    reset_s = cpu_s(lambda: resets(config, steps)) / steps
    return {
        "products": 1000,
        "load_cpu_s": load,
        "us_per_step": step_s * 1e6,
        "steps_per_cpu_s": 1 / step_s,
        "times_the_original_per_step": ORIGINAL["ms_per_step"] * 1e-3 / step_s,
        "resets_per_cpu_s": 1 / reset_s,
        "times_the_original_per_reset": 1 / reset_s / ORIGINAL["resets_per_s"],
        "private_mb_per_extra_worker": worker_mb(config),
    }


def _worker(config: webshop.Config, pipe: Any) -> None:
    before = private_mb()
    random_walk(config, 2000)
    pipe.send((before, private_mb()))


def private_mb() -> float:
    """Memory that this process cannot share: pages that no file backs."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


def worker_mb(config: webshop.Config) -> float:
    """Private memory of a freshly spawned process that plays, interpreter and libraries included."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_worker, args=(config, sender))
    process.start()
    _, after = receiver.recv()
    process.join()
    return float(after)


def raw_rows(products: int) -> Iterator[dict[str, Any]]:
    """Generated products as rows of the original's products file, padded to its usual size."""
    for number in range(products):
        made = generate.product(number, 0)
        filler = " ".join(made.bullets) * 6
        yield {
            "asin": made.asin, "name": made.title, "full_description": f"{made.description} {filler}",
            "small_description": list(made.bullets), "pricing": f"${made.prices[0]}", "images": [made.image],
            "product_category": made.product_category, "category": made.category, "query": made.query,
            "customization_options": {k: [{"value": v, "image": None} for v in vs] for k, vs in made.options.items()},
            "small_description_old": filler,
        }  # fmt: skip


def write_raw(folder: Path, products: int) -> None:
    """The three raw files."""
    with (folder / "items_shuffle.json").open("w") as file:
        for number, row in enumerate(raw_rows(products)):
            file.write(("[" if not number else ",\n") + json.dumps(row))
        file.write("]")
    asked: dict[str, Any] = {}
    wishes: dict[str, Any] = {}
    for number in range(products):
        made = generate.product(number, 0)
        asked[made.asin] = {"attributes": made.attributes, "instruction": None, "instruction_attributes": []}
        if number % 97 == 0:
            fields = ("instruction", "instruction_attributes", "instruction_options")
            wishes[made.asin] = [dict(zip(fields, wish, strict=True)) for wish in made.wishes]
    (folder / "items_ins_v2.json").write_text(json.dumps(asked))
    (folder / "items_human_ins.json").write_text(json.dumps(wishes))


def _build(data: Path, pipe: Any) -> None:
    seconds = cpu_s(lambda: prepare.prepare(data, data / store.FOLDER, nouns.built_in()))
    pipe.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _open(data: Path, pipe: Any) -> None:
    start = time.perf_counter()
    config = webshop.Config(data=str(data), split="all", max_steps=None)
    shop = market.open_market(config)
    bm25.search(shop.catalogue.postings, "red rug", 50)
    opened = time.perf_counter() - start
    queries = [shop.goals[i].wish for i in range(min(200, len(shop.goals)))]
    query_s = cpu_s(lambda: [bm25.search(shop.catalogue.postings, query, 50) for query in queries]) / len(queries)
    random_walk(config, 5000)
    pipe.send((opened, query_s, private_mb(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def _apart(target: Callable[[Path, Any], None], data: Path) -> Any:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(data, sender))
    process.start()
    found = receiver.recv()
    process.join()
    return found


def large(products: int) -> dict[str, Any]:
    """A prepared store of generated raw files."""
    folder = Path(tempfile.mkdtemp(prefix="webshop-benchmark-"))
    try:
        write_raw(folder, products)
        size = sum(path.stat().st_size for path in folder.glob("*.json")) / 1e6
        build_s, build_mb = _apart(_build, folder)
        opened_s, query_s, private, resident = _apart(_open, folder)
        stored = sum(path.stat().st_size for path in (folder / store.FOLDER).iterdir()) / 1e6
    finally:
        shutil.rmtree(folder)
    return {
        "products": products, "raw_mb": size, "store_mb": stored, "build_cpu_s": build_s, "build_peak_mb": build_mb,
        "second_process_opens_s": opened_s, "query_cpu_ms": query_s * 1e3, "private_mb": private,
        "resident_with_shared_mb": resident,
    }  # fmt: skip


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description="Speed and memory of the WebShop environment.")
    parser.add_argument("--products", type=int, default=0, help="also prepare a store of this many generated products")
    parser.add_argument("--steps", type=int, default=100_000)
    given = parser.parse_args()
    result: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine(), "original": ORIGINAL}
    result["generated"] = small(given.steps)
    if given.products:
        result["prepared"] = large(given.products)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
