"""Schedulers of the tests' own."""

from __future__ import annotations

import os
import subprocess


class Asked:
    """A scheduler that its commands find by variables of the environment."""

    variables: dict[str, str]

    def ask(self, *command: str) -> str:
        """Output of one of its commands; empty if it fails."""
        environment = {**os.environ, **self.variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""
