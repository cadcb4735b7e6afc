"""One fold run: a network trained with one loss on one set of classes."""
