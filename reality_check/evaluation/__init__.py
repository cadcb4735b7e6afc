"""Scores of a network: metrics, categories, scores of every query, galleries."""
