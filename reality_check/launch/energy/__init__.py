"""What the trainings took of electricity, by the counters of the machines, where they have any.

:mod:`.counters` reads them, :mod:`.meter` notes them while a worker works, and :mod:`.shares` makes
kilowatt hours of the notes, for the report.
"""
