"""Round 2: its models, its faults and its right deployments."""
