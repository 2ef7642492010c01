"""Catalogue `agentrl.algorithms`: a file's name is its name in configurations (see `agentrl.catalogue`)."""

if __name__ != "agentrl.algorithms":
    raise ImportError("import agentrl.algorithms, not the bare folder name")
