"""Training one run directory: the Lightning module, optimizers, schedules and loggers."""
