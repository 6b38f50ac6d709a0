"""Types of trainers, out of the sources that pip installed: importing the modules would need torch and ray."""

import ast
import importlib.util
from pathlib import Path

import pytest


def parsed(package: str, path: str) -> ast.Module:
    """A module of an installed package. Skips where the trainer does not install on this Python."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} has no release for this Python")
    return ast.parse((Path(spec.submodule_search_locations[0]) / path).read_text())


def taken(module: ast.Module, names: list[str], given: dict) -> dict:
    """Classes and functions of a module, run as they stand with what they use `given`."""
    wanted = [node for node in module.body if getattr(node, "name", None) in names]
    assert [node.name for node in wanted] == names
    for node in wanted:
        node.decorator_list = []
    namespace = {"__name__": "taken", **given}
    exec(compile(ast.Module(wanted, []), "taken", "exec", dont_inherit=True), namespace)
    return namespace


def function(module: ast.Module, name: str) -> ast.FunctionDef:
    (found,) = [node for node in ast.walk(module) if getattr(node, "name", None) == name]
    return found


def subscripts(tree: ast.AST, name: str) -> set[str]:
    """Keys that are read of a variable: name["key"] and name.get("key", …)."""
    keys = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            keys.add(ast.literal_eval(node.slice))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name:
                keys.add(ast.literal_eval(node.args[0]))
    return keys
