"""From trees to switch tables: plans, budgets, and the changes that reconcile a switch."""
