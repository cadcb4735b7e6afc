"""The papers behind the losses: their tables, claims, verdicts and figures."""
