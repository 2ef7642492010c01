"""`agentrl recipes [NAME] [--json]`: list the recipes that come with the program, or print one of them.

`agentrl train NAME` runs a recipe of this list. `agentrl recipes NAME > mine.toml` makes a copy that you can change.
"""

import json
from collections.abc import Sequence

from agentrl.cli._parser import Parser


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl recipes", __doc__)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--json", action="store_true", help="one JSON list: name, path, about, needs, takes")
    arguments = parser.parse_args(words)
    from agentrl.settings import find_recipe, shipped_recipes

    if arguments.name is not None:
        print(find_recipe(arguments.name).read_text("utf-8"), end="")
        return 0
    recipes = shipped_recipes()
    if arguments.json:
        print(json.dumps([{**recipe._asdict(), "path": str(recipe.path)} for recipe in recipes]))
        return 0
    for recipe in recipes:
        print(f"{recipe.name:20} {recipe.about}")
        print(f"{'':20}   needs: {recipe.needs or 'not stated'}; takes: {recipe.takes or 'not stated'}")
    return 0
