"""Search-R1's published questions and corpus: names, sizes, checksums, and how to fetch them."""

from agentrl.env import PublishedFile

HUB = "https://huggingface.co/datasets"
FILES = (
    PublishedFile(
        name="wiki-18.jsonl.gz",
        about="21,015,324 passages of Wikipedia, December 2018",
        size=5_100_000_000,
        url=f"{HUB}/PeterJinGo/wiki-18-corpus",
    ),
    PublishedFile(
        name="e5_Flat.index",
        about="FAISS index of their e5-base-v2 vectors, 21,015,324 x 768 float32; join part_aa and part_ab",
        size=64_600_000_000,
        url=f"{HUB}/PeterJinGo/wiki-18-e5-index",
    ),
    PublishedFile(
        name="train.parquet",
        about="training questions of NQ and HotpotQA, as scripts/data_process of Search-R1 writes them",
        url=f"{HUB}/PeterJinGo/nq_hotpotqa_train",
    ),
    PublishedFile(name="test.parquet", about="test questions, same source", url=f"{HUB}/PeterJinGo/nq_hotpotqa_train"),
)
FETCH = (
    "pip install huggingface_hub && mkdir -p DIR && cd DIR",
    "hf download PeterJinGo/wiki-18-corpus --repo-type dataset --local-dir . && gzip -dk wiki-18.jsonl.gz",
    "hf download PeterJinGo/wiki-18-e5-index --repo-type dataset --local-dir . && cat part_* > e5_Flat.index",
    "hf download PeterJinGo/nq_hotpotqa_train --repo-type dataset --local-dir .",
)
