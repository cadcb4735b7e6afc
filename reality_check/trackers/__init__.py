"""Sends finished trials to TensorBoard, MLflow, Weights & Biases, or an own tracker."""
