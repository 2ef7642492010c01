"""The package list, computed: a static list in pyproject.toml silently loses new sub-packages."""

from setuptools import find_packages, setup

FOLDERS = {"agentrl": "agentrl", "agentrl.envs": "envs", "agentrl.algorithms": "algorithms", "agentrl.tools": "tools"}
CATALOGUES = ["envs", "envs.*", "algorithms", "algorithms.*", "tools", "tools.*"]  # links inside agentrl/, not packages

packages = [
    name
    for prefix, folder in FOLDERS.items()
    for name in [prefix, *(f"{prefix}.{sub}" for sub in find_packages(folder, exclude=CATALOGUES))]
]
setup(packages=packages)
