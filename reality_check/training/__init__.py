"""Fold runs: each trains a network with a loss on some classes."""
