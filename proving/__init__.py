"""What holds against hostile files, unlucky users and sudden ends, proved by programs that try."""
