"""A network computed in several ways at once: the one place that asks what another arithmetic would give.

* `program`     : a graph as ordered steps, with sites for its values;
* `worlds`      : one way to compute it: what it changes, and whose values it reads;
* `evaluating`  : all worlds advance together, step by step, and somebody watches;
* `control_flow`: If, Loop and Scan from inside, where somebody changes or watches something there;
* `sessions`    : one session of ONNX Runtime for each kind of node; `machine`: the memory that they share;
* `rounding`    : what is stored, rounded in a compiled loop;
* `simulating`, `switching`, `reordering`: worlds of a precision, of an assignment, of another order of sums;
* `backward`    : one sweep backwards over the steps.
"""
