"""One metric per file; each file's docstring is its page, each file's last line its `METRIC`."""
