"""One file for each format or published data set that can be read."""
