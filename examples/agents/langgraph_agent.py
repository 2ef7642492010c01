"""An agent written with LangGraph, unchanged: it does not know that it is trained.

    agentrl train agent.toml agents.main.command="PYTHON agents/langgraph_agent.py" model.path=DIR

in the folder `examples`. PYTHON: a Python with `pip install langgraph langchain-openai`; it needs no agentrl.
OPENAI_BASE_URL and OPENAI_API_KEY lead to the model in training, AGENTRL_TASK is the task. What it prints is its
answer.
"""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

RULES = "Solve the task. Give the number alone as your last answer."


@tool
def add(a: int, b: int) -> int:
    """The sum of two whole numbers."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """The product of two whole numbers."""
    return a * b


def main() -> None:
    """A graph of two nodes: the model and its tools."""
    tools = [add, multiply]
    model = ChatOpenAI(model="any").bind_tools(tools)  # reads OPENAI_BASE_URL and OPENAI_API_KEY

    def ask(state: MessagesState) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    task = [("system", RULES), ("user", os.environ["AGENTRL_TASK"])]
    ended = graph.compile().invoke({"messages": task}, {"recursion_limit": 12})
    print(ended["messages"][-1].content)


if __name__ == "__main__":
    main()
