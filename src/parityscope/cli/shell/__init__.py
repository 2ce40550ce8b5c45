"""What stands around every subcommand: the application, its process and memory, the terminal, the files that it claims.

`tools` are the subcommands as an assistant calls them.
"""
