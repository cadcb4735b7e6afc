"""What tests of several packages share; importable, since `tests/` is on pytest's path."""
