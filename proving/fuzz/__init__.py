"""Fuzzes the readers of data, guided by the lines that inputs reach."""
