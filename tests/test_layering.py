"""A folder imports only from folders above it, and importing it loads nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = {
    "trajectories": 0,
    "tool_call_parsers": 1,
    "backends": 1,
    "toolsets": 2,
    "inference": 2,
    "environments": 3,
    "rollouts": 4,
    "trainers": 5,
    "scripts": 6,
}

UPWARD = {("environments/base.py", "rollouts")}
"""The one upward import: ``BaseAgentEnv.cli()`` loads the runner when called."""

HEAVY = {
    "torch",
    "transformers",
    "vllm",
    "asyncssh",
    "modal",
    "docker",
    "anthropic",
    "ray",
    "playwright",
    "datasets",
    "peft",
    "trl",
    "verl",
    "skyrl",
}


def sources():
    return [path for folder in LAYERS for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_from_layers_above(path):
    relative = path.relative_to(ROOT)
    folder = relative.parts[0]
    for name in imports(ast.parse(path.read_text())):
        if name == folder or name not in LAYERS or (str(relative), name) in UPWARD:
            continue
        assert LAYERS[name] < LAYERS[folder], f"{relative} imports {name}"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_packages_are_never_imported_at_import_time(path):
    eager = {
        name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imports(node)
    }
    assert path.parts[-2] == "scripts" or not eager & HEAVY


@pytest.mark.parametrize("folder", [name for name in LAYERS if name != "scripts"])
def test_importing_a_package_loads_nothing_heavy(folder):
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / folder).rglob("*.py")
    ]
    code = f"import sys; import {', '.join(modules)}; print(sorted(set(sys.modules) & {HEAVY!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
