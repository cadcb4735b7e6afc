"""What losses, metrics and modules share; a loss can be copied elsewhere with this package."""
