"""Figures of the papers behind the losses, drawn again from formulas or from trainings.

``python -m examples.paper_figures NAME`` draws one, ``make figures`` all of them. A module with the
name of a figure gets its numbers (``compute``) and draws from these alone (``draw``).
"""
