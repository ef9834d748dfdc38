"""Run directories: executing a specification, loading a trained model, sweeping a grid."""
