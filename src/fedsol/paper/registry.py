"""Every recipe by its name."""

from fedsol.paper.analyses import analysis_recipes
from fedsol.paper.figures import figure_recipes
from fedsol.paper.measured import measured_recipes
from fedsol.paper.personal import personalized_recipe
from fedsol.paper.recipe import Recipe
from fedsol.paper.tables import table_recipes
from fedsol.validation import unknown_name


def recipes() -> dict[str, Recipe]:
    """All tables, then all figures, each in the order of the paper."""
    tables = (*table_recipes(), personalized_recipe())
    return {recipe.name: recipe for recipe in (*tables, *measured_recipes(), *figure_recipes(), *analysis_recipes())}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    known = recipes()
    if name not in known:
        raise unknown_name("recipe", name, [*known, "list"])
    return known[name]
