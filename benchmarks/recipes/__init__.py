"""The recipes that come with the program: `agentrl train NAME` takes each by its file's name, from any folder.

Comment lines at the top of a recipe say what it does; `# Needs:` and `# Takes:` say what it needs and how long it takes
(`agentrl recipes` prints these).
"""
