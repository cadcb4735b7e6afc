"""Readers of data sets, one a module, each called as in ``reader:`` of a data set's YAML.

``read(config)`` returns the samples of a :class:`reality_check.data.sample_set.SampleSet`, or the
:class:`reality_check.data.image_files.ImageFiles` to be decoded. Its keys are those of its class in
:mod:`reality_check.config.datasets`.
"""
