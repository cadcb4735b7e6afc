"""The versions of the distribution and of its files, in one place."""

__version__ = "0.1.0"

#: Version of the files: YAML, output folder and pack. It is raised if older programs would misread
#: one, or refuse it without saying why; ``docs/stability.md`` says what they promise.
SCHEMA_VERSION = 1
