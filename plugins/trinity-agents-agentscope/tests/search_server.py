"""A search server that knows one page: tools by MCP over standard input and output."""

from mcp.server.fastmcp import FastMCP

server = FastMCP("search")


@server.tool()
def look_up(query: str) -> str:
    """Search the web."""
    return f"The capital of France is Paris. ({query})"


if __name__ == "__main__":
    server.run()
