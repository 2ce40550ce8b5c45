"""What a layer may have computed instead: another arithmetic (`arithmetic`, one per file), or any other function, generated.

* `stretch`  : the nodes between tensors that were observed, on the candidate's own inputs, and how one edit changes them;
* `changes`  : every generic change of one array: layouts, formats, grids, shifts, order, scale;
* `functions`: elementwise functions of ONNX and the frameworks;
* generators, each of which yields edits: `from_values` (fits of the result), `from_neighbours` (left out, done twice, exchanged),
  `from_attributes`, `from_operators` and `from_pointwise` (out of the standard's schemas and function bodies), `from_inputs`;
* `searching`: tries them all, ranks what explains most in the fewest words, and confirms it on what it was not fitted on;
* `worker`   : does that in a process of its own, as an edit may crash or hang the runtime.

Ranking is by description length (J. Rissanen, "Modeling by shortest data description", Automatica 14, 1978): the bits that it
takes to say an edit (the logarithm of its alternatives, 32 for a fitted number) and the bits that what it leaves costs,
n/2 log2 of the share of the squared error. So "cut off at 6" beats a table of 4,000 corrections.
"""
