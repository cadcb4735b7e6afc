"""Deep-metric-learning losses, modules and metrics for pytorch-metric-learning."""
