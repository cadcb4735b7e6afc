"""Finished trials, told to TensorBoard, MLflow, Weights & Biases, or a tracker of one's own."""
