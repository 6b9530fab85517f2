"""`make docs`: write the generated parts of docs/commands.md and docs/tables.md."""

from tests.docs.generated import GENERATED, path_of, renewed

if __name__ == "__main__":
    for page in GENERATED:
        path_of(page).write_text(renewed(page), encoding="utf-8")
