"""Round 3: its models, their inputs, its faults and its right deployments."""
