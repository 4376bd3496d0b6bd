"""Turns trees into switch tables: plans, budgets, and the changes that reconcile a switch."""
