"""Write one page per toolset into docs/toolsets, from the schemas the model is shown.

Usage: python scripts/document_toolsets.py
"""

from pathlib import Path
from typing import Any

from toolsets.registry import TOOLSETS, Toolset
from toolsets.tool import Tool

FOLDER = Path(__file__).parent.parent / "docs" / "toolsets"

NOTE = "<!-- Written by scripts/document_toolsets.py from the tools' schemas; edit those. -->"


def pages() -> dict[str, str]:
    """Return each page by its file name."""
    return {f"{name}.md": _page(name, toolset) for name, toolset in TOOLSETS.items()}


def _page(name: str, toolset: Toolset) -> str:
    parts = [NOTE, f"# {name}"]
    if toolset.includes:
        parts.append("Includes " + ", ".join(f"[{each}]({each}.md)" for each in toolset.includes) + ".")
    if toolset.needs:
        parts.append("Left out where the sandbox has no " + " or no ".join(toolset.needs) + ".")
    return "\n\n".join([*parts, *map(_tool, toolset.tools)]) + "\n"


def _tool(tool: Tool) -> str:
    function = tool.schema["function"]
    place = "in the sandbox" if tool.runs_in == "slot" else "on the host"
    parts = [f"## {tool.name}", function["description"], f"Runs {place}."]
    schema = function["parameters"]
    rows = [
        _row(name, each, name in schema.get("required", [])) for name, each in schema["properties"].items()
    ]
    if rows:
        parts.append("\n".join(["| argument | type | default | what |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _row(name: str, schema: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{schema.get('default')!r}`"
    return f"| `{name}` | {_type(schema)} | {default} | {schema.get('description', '')} |"


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        return "{" + ", ".join(f"{key}: {_type(each)}" for key, each in schema["properties"].items()) + "}"
    return schema["type"]


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
