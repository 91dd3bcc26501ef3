"""Every recipe by its name."""

from fedsol.paper.figures import figure_recipes
from fedsol.paper.recipe import Recipe
from fedsol.paper.tables import table_recipes
from fedsol.validation import unknown_name


def recipes() -> dict[str, Recipe]:
    """All tables, then all figures, each in the order of the paper."""
    return {recipe.name: recipe for recipe in (*table_recipes(), *figure_recipes())}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    known = recipes()
    if name not in known:
        raise unknown_name("recipe", name, [*known, "list"])
    return known[name]
