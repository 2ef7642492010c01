"""The package list, computed: a static list in pyproject.toml silently loses new sub-packages."""

from setuptools import find_packages, setup

FOLDERS = {
    "agentrl": "agentrl",
    "agentrl.envs": "envs",
    "agentrl.algorithms": "algorithms",
    "agentrl.tools": "tools",
    "agentrl.recipes": "benchmarks/recipes",
}
# links inside agentrl/, not packages
LINKS = ["envs", "envs.*", "algorithms", "algorithms.*", "tools", "tools.*", "recipes"]

packages = [
    name
    for prefix, folder in FOLDERS.items()
    for name in [prefix, *(f"{prefix}.{sub}" for sub in find_packages(folder, exclude=LINKS))]
]
setup(packages=packages)
