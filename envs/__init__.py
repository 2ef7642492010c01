"""Catalogue `agentrl.envs`: a file's name is its name in configurations (see `agentrl.catalogue`)."""

if __name__ != "agentrl.envs":
    raise ImportError("import agentrl.envs, not the bare folder name")
