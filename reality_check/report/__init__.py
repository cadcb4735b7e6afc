"""The report of an experiment: from records to pages."""
