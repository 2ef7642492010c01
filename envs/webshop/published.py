"""The original's files: names, sizes, checksums, and how to fetch them.

Sizes and checksums of the small set and of the instructions are those that the mirror Ricardo-H/webshop-data on the
Hugging Face hub states; sizes of the full set are rounded, and its checksums are not known.
"""

from agentrl.env import PublishedFile

DRIVE = "https://drive.google.com/uc?id="
MIRROR = "https://huggingface.co/datasets/Ricardo-H/webshop-data"
WISHES = PublishedFile(
    name="items_human_ins.json",
    about="human instructions, for both sets",
    size=5_137_548,
    exact=True,
    sha256="cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
    url=f"{DRIVE}14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
)
SMALL = (
    PublishedFile(
        name="items_shuffle_1000.json",
        about="1,000 products",
        size=4_467_013,
        exact=True,
        sha256="30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
        url=f"{DRIVE}1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    ),
    PublishedFile(
        name="items_ins_v2_1000.json",
        about="their attributes and synthetic instructions",
        size=147_099,
        exact=True,
        sha256="f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
        url=f"{DRIVE}1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
    ),
    WISHES,
)
FULL = (
    PublishedFile(
        name="items_shuffle.json",
        about="1,181,436 products",
        size=5_300_000_000,
        url=f"{DRIVE}1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
    ),
    PublishedFile(
        name="items_ins_v2.json",
        about="their attributes and synthetic instructions",
        url=f"{DRIVE}1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
    ),
    WISHES,
)
HELP = """\
DIR holds the original's files, under these names:
  small set: items_shuffle_1000.json, items_ins_v2_1000.json, items_human_ins.json  (9.8 MB)
  full set:  items_shuffle.json, items_ins_v2.json, items_human_ins.json  (about 5.3 GB and more)
agentrl envs webshop lists their sizes, checksums and addresses."""
FETCH = (
    "pip install gdown && mkdir -p DIR && cd DIR",
    *(f"gdown '{file.url}' -O {file.name}" for file in SMALL),
    f"# the small set also lies at {MIRROR}",
)
