"""Readers of data sets. Each is a module, whose name is the ``reader`` in a data set's YAML.

The function ``read(config)`` of a reader returns a
:class:`reality_check.data.sample_set.SampleSet`, or the
:class:`reality_check.data.image_files.ImageFiles` to be decoded. The keys of its configuration are
defined in :mod:`reality_check.config.datasets`.
"""

from reality_check.utils.matplotlib_import import import_matplotlib

import_matplotlib()  # before a reader imports it
