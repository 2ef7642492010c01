"""`agentrl envs [NAME [verb ...]] [--json]`: list the environments, or run a command of one environment."""

import json
from collections.abc import Sequence

from agentrl import catalogue
from agentrl.env import EnvironmentFile


def main(words: Sequence[str]) -> int:
    """Without a name, list the environments; with a name, run the command that the second word names.

    If the second word is missing or is an option, the environment's command "" runs. If the environment has no such
    command, its description, options and commands are printed.
    """
    if words and words[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if not words or words[0].startswith("-"):
        return listing(as_json="--json" in words)
    file = catalogue.load(EnvironmentFile, words[0])
    commands = file.commands
    if len(words) > 1 and words[1] in commands:
        return commands[words[1]](words[2:])
    if len(words) > 1 and not words[1].startswith("-") and "=" not in words[1]:
        raise ValueError(f"{words[0]} has no command {words[1]!r}{catalogue.nearest(words[1], filter(None, commands))}")
    if "" in commands:
        return commands[""](words[1:])
    if "--json" in words[1:]:
        options = [*file.config.model_fields]
        print(json.dumps({"name": words[0], "about": file.about, "options": options, "commands": sorted(commands)}))
        return 0
    print(file.about)
    print("options: " + ", ".join(file.config.model_fields))
    if commands:
        print("commands: " + ", ".join(sorted(commands)))
    return 0


def listing(*, as_json: bool) -> int:
    """Print every environment with the first line of its description; then the aliases.

    If an environment cannot be imported, the error stands in place of the description.
    """
    rows = []
    for name in catalogue.names("envs"):
        try:
            about = catalogue.load(EnvironmentFile, name).about.splitlines()[0]
        except Exception as error:  # noqa: BLE001  one broken file must not hide the other environments
            about = f"cannot be used here: {error}"
        rows.append({"name": name, "about": about})
    for alias, (name, meant) in catalogue.aliases("envs").items():
        options = ", ".join(f"{key} = {value!r}" for key, value in meant.items())
        rows.append({"name": alias, "about": f"{name} with {options}: generated here, nothing to download."})
    print(json.dumps(rows) if as_json else "\n".join(f"{row['name']:12} {row['about']}" for row in rows))
    return 0
