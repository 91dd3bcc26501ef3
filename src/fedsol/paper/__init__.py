"""The paper's tables and figures as recipes, with its published numbers next to ours."""
