"""What GLUE is: tasks, data, metrics. Nothing here imports torch."""
