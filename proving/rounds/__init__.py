"""A round of faults that nobody who wrote the product had seen: eight models, per model ten faults and four right deployments."""
