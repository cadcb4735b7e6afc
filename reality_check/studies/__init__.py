"""The plan of an experiment, and its trials in Optuna's studies."""
