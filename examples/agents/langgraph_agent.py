"""A graph of LangGraph: the model, its tools, and the way back to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

if TYPE_CHECKING:
    from trinity.common.ports import Endpoint


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


TOOLS = [add, multiply]


async def solve(task: dict[str, Any], endpoint: Endpoint) -> float:
    """Run the graph; return 1 for the right answer."""
    chat = ChatOpenAI(
        model=endpoint.model, base_url=endpoint.base_url, api_key=endpoint.key
    ).bind_tools(TOOLS)

    async def ask(state: MessagesState) -> MessagesState:
        return {"messages": [await chat.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    asked = {"messages": [("user", task["question"])]}
    try:
        ended = await graph.compile().ainvoke(asked, {"recursion_limit": 8})
    except GraphRecursionError:
        return 0.0
    return float(str(ended["messages"][-1].content).strip() == task["answer"])
