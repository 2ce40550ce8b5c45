"""`parityscope reduce` beside Polygraphy's `debug reduce`, on the same planted faults."""
