"""What is tried next, and by whom: Optuna's studies and the plan of an experiment."""
