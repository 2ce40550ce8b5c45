"""Tables: the models of the round, and what is wrong with each deployment."""
