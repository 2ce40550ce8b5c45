"""What tests, the demo and outside authors of plug-ins share; nothing else in the package imports it."""
