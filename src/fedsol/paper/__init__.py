"""The paper's tables and figures as recipes, with its published numbers beside ours."""
