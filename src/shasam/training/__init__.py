"""Training: the trainer, its checkpoints, and the only door to the test split."""
