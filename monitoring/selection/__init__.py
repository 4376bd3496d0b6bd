"""Which topics get a tree: scores, budgets of switches, the knapsack."""
