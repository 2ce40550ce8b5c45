"""Built-in task metrics, one file each; `parityscope.verification.task_metrics` says what one is."""
