"""Neural-network modules that the losses papers need (filled as they are needed)."""
