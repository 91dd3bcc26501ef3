"""Every recipe by its name."""

from collections.abc import Callable

from fedsol.config.tables import unknown_name
from fedsol.paper import data_figures, figures, personal, tables, untrained
from fedsol.paper.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "gradient-projection": tables.gradient_projection,
    "main": tables.main,
    "architectures": tables.architectures,
    "combinations": tables.combinations,
    "partial": tables.partial,
    "flops": untrained.flops,
    "personalized": personal.personalized,
    "larger-datasets": tables.larger_datasets,
    "larger-models": tables.larger_models,
    "objectives": tables.objectives,
    "latency": untrained.latency,
    "hyperparameters": untrained.hyperparameters,
    "scenarios": untrained.scenarios,
    "partitions": data_figures.partitions,
    "orthogonality": figures.orthogonality,
    "learning-factors": figures.learning_factors,
    "adaptive-strength": figures.adaptive_strength,
    "strength": figures.strength,
    "divergence": figures.divergence,
    "preservation": figures.preservation,
    "landscape": figures.landscape,
    "medical": data_figures.medical,
    "learning-curves": figures.learning_curves,
    "learning-factors-sam": figures.learning_factors_sam,
    "toy": untrained.toy_example,
}
"""All tables (those of settings last), then all figures, each in the order of the paper.

The paper's other figures are drawings of the idea.
"""


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name; no other is made."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, [*RECIPES, "list"])
    return RECIPES[name]()
