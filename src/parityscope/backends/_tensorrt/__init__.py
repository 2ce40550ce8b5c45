"""TensorRT behind one adapter: which of its packages is here, how a network is parsed and built, and what became of it.

* `packages.py`  tensorrt (8.6 to 10, 11) or tensorrt_rtx, and what each version has;
* `naming.py`    every ONNX node under a name of its own, so that the builder's reports can be read back;
* `building.py`  parse and build, with the builder's own log;
* `layers.py`    the parsed network's layers, each with the node that it works for;
* `logger.py`    the one logger that TensorRT keeps;
* `fates.py`     what became of each ONNX node: in a kernel, absorbed, folded, removed or refused;
* `network.py`   all of it as one `NetworkView`;
* `findings.py`  what of it a user must know;
* `plans.py`     what the first bytes of an engine tell;
* `running.py`   an engine, strictly by name (not run);
* `inspector.py` the engine inspector's JSON, of both layouts, as an `ExecutedGraph`.
"""
