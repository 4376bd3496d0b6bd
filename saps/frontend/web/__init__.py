"""The Web frontend: one HTTP application on its own port, to which each part adds its routes."""
