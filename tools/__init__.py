"""Catalogue `agentrl.tools`: a file's name is its name in configurations (see `agentrl.catalogue`)."""

if __name__ != "agentrl.tools":
    raise ImportError("import agentrl.tools, not the bare folder name")
