"""Helpers shared by losses, metrics and modules. A loss copied elsewhere needs this package too."""
