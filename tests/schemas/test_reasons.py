"""Rules make reasons in one way: by a sentence of `schemas.reasons`, each of which is used."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from schemas import reasons
from schemas.enums import LintCode, RejectionCode, RestartCode
from schemas.reasons import Sentence

ROOT: Final = Path(__file__).parents[2]
SENTENCES: Final = {name for name, value in vars(reasons).items() if isinstance(value, Sentence)}
CODES: Final = {code.name for codes in (RejectionCode, LintCode, RestartCode) for code in codes}
RESULTS: Final = {
    *("RowOutcome", "AuditEntry", "Rejection", "Obstacle", "CancellationRisk", "step"),
    *("ApiError", "RefusedRequestError"),
}
"""Calls with a code, an outcome or a step, followed by a reason."""
JOINING: Final = {"planner/columns/sentences.py"}
"""Modules that join texts on Spark: parts of reasons."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return the modules that may give reasons, and the one with the sentences."""
    files = [file for root in ("jobs", "planner") for file in sorted((ROOT / root).rglob("*.py"))]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in [*files, ROOT / "schemas/reasons.py"]}
    marks = ("reasons", "Sentence(", *(f"{name}(" for name in RESULTS), "Outcome.")
    return {path: ast.parse(text) for path, text in texts.items() if any(mark in text for mark in marks)}


def sentences_in(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "reasons":
            yield inner.attr
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id in SENTENCES:
            yield inner.id


def reasons_of(node: ast.AST) -> list[ast.expr]:
    """Return the reasons in a result, or in a pair of an outcome or a code and its reason."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in RESULTS:
            return [*node.args[1:3], *keywords_of(node)]
        case ast.Call():
            return keywords_of(node)
        case ast.Tuple(elts=[ast.Attribute(attr=name, value=owner), reason]):
            return [reason] if name in CODES or ast.unparse(owner) == "Outcome" else []
    return []


def keywords_of(call: ast.Call) -> list[ast.expr]:
    """Return what a call gives as its argument `reason`."""
    return [keyword.value for keyword in call.keywords if keyword.arg == "reason"]


def joins_texts(node: ast.AST) -> bool:
    """Whether an expression joins columns with a text of its own."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="F"), attr="concat_ws" | "format_string" | "printf")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="F"), attr="concat")):
            return any(ast.unparse(part).startswith("F.lit(") for part in node.args)
    return False


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and bool(node.value))


def test_every_sentence_is_used() -> None:
    assert SENTENCES - {name for tree in modules().values() for name in sentences_in(tree)} == set()


def test_no_sentence_has_two_names() -> None:
    templates = Counter(getattr(reasons, name).template for name in SENTENCES)

    assert [template for template, names in templates.items() if names > 1] == []


def test_every_code_has_a_sentence() -> None:
    """A function, or a table of reasons, gives both. Only one kind of plan has NOT_SET."""
    places = (
        node
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign)
    )
    explained = {
        inner.attr
        for place in places
        if any(sentences_in(place))
        for inner in ast.walk(place)
        if isinstance(inner, ast.Attribute)
    }
    assert CODES - explained == {"ILLEGAL_TRANSITION", "NOT_SET"}


def test_no_result_of_a_rule_has_a_text_of_its_own() -> None:
    written = [
        f"{path}:{reason.lineno}: {ast.unparse(reason)}"
        for path, tree in modules().items()
        if path.startswith("planner/")
        for node in ast.walk(tree)
        for reason in reasons_of(node)
        if is_text(reason)
    ]
    assert written == []


def test_rules_on_spark_join_no_texts_of_their_own() -> None:
    files = sorted((ROOT / "planner").rglob("*.py"))
    joined = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for file in files
        if (path := str(file.relative_to(ROOT))) not in JOINING
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and joins_texts(node)
    ]
    assert joined == []
