"""Starting the shop loads no heavy library."""

import subprocess
import sys

CODE = """
import sys
from agentrl.envs.webshop.cli import main
main(["search", "--query", "rug", "--k", "1", "num_products=20"])
heavy = {"torch", "transformers", "spacy", "gymnasium", "matplotlib"} & set(sys.modules)
sys.exit(f"loaded {sorted(heavy)}" if heavy else 0)
"""


def test_searching_loads_neither_torch_nor_spacy():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
