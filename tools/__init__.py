"""Catalogue `agentrl.tools`: the name of a file is the name of its tool in recipes (see `agentrl.catalogue`)."""

if __name__ != "agentrl.tools":
    raise ImportError("import agentrl.tools, not the bare folder name")
