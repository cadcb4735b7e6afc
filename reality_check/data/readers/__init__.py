"""One file for each format or published data set that can be read."""

from reality_check.utils.matplotlib_import import import_matplotlib

import_matplotlib()  # before any module here does
