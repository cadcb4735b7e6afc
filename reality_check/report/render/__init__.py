"""From sections to files: HTML, Markdown, LaTeX, JSON."""
