"""Selects the topics that get a tree: scores, the switches' budgets, the knapsack."""
