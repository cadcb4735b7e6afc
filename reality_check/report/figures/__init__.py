"""The figures of a report."""

from reality_check.utils.matplotlib_import import import_matplotlib

import_matplotlib()  # before any module of this package imports it
