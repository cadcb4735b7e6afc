"""Draws the blank figure where it is imported: in the process that commands are forked from."""

from support.blank_figures import rendered

rendered()
