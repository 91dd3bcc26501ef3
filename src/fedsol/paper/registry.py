"""Every recipe by its name."""

from fedsol.config.tables import unknown_name
from fedsol.paper.analyses import analysis_recipes
from fedsol.paper.data_figures import data_recipes
from fedsol.paper.figures import figure_recipes
from fedsol.paper.measured import measured_recipes
from fedsol.paper.personal import personalized_recipe
from fedsol.paper.recipe import Recipe
from fedsol.paper.tables import table_recipes

ORDER = (
    "gradient-projection",
    "main",
    "architectures",
    "combinations",
    "partial",
    "flops",
    "personalized",
    "larger-datasets",
    "larger-models",
    "objectives",
    "latency",
    "hyperparameters",
    "scenarios",
    "partitions",
    "orthogonality",
    "learning-factors",
    "adaptive-strength",
    "strength",
    "divergence",
    "preservation",
    "landscape",
    "medical",
    "learning-curves",
    "learning-factors-sam",
    "toy",
)
"""All tables (those of settings last), then all figures, each in the order of the paper."""


def recipes() -> dict[str, Recipe]:
    """Every table and figure that shows a result. The paper's other figures are drawings of the idea."""
    tables = (*table_recipes(), personalized_recipe())
    made = (*tables, *measured_recipes(), *figure_recipes(), *analysis_recipes(), *data_recipes())
    return {recipe.name: recipe for recipe in sorted(made, key=lambda recipe: ORDER.index(recipe.name))}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    known = recipes()
    if name not in known:
        raise unknown_name("recipe", name, [*known, "list"])
    return known[name]
