"""What the trainings took of electricity, by the counters of the machines, where they have any.

:mod:`.counters` reads them, and :mod:`.meter` notes them while a worker works; the report makes
kilowatt hours of the notes (:mod:`reality_check.report.energy_shares`).
"""
