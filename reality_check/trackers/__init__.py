"""Sends finished trials to TensorBoard, MLflow, Weights & Biases, or a user-defined tracker."""
