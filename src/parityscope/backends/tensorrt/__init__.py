"""TensorRT behind one adapter: which of its packages is here, how a network is parsed and built, and what became of it.

* `packages.py`  tensorrt (8.6 to 10, 11) or tensorrt_rtx, and what each version has;
* `api.py`       what is called of it, as types;
* `options.py`   what is asked of a build, checked against the version; `profiles.py` shapes, `plugins.py` libraries,
  `precisions.py` types of single layers, `marking.py` what an engine shows, `configuring.py` all of it as a configuration;
* `naming.py`    every ONNX node under a name of its own, so that the builder's reports can be read back;
* `settling.py`  what shapes and constants decide, computed before the build (`_inlining.py`);
* `building.py`  parse and build, with the builder's own log; `logger.py` the one logger that TensorRT keeps;
* `layers.py`    the parsed network's layers, each with the node that it works for;
* `network.py`   what became of each ONNX node (in a kernel, absorbed, folded, removed or refused), all of it as one
  `NetworkView`, and an engine's layers as an `ExecutedGraph`;
* `asked.py`     the types that nodes were asked for, and the layers that have others;
* `borders.py`   which values of the model the engine's tensors are;
* `findings.py`  what of it a user must know;
* `inspector.py` the engine inspector's JSON, of both layouts;
* `loading.py`   what the first bytes of an engine tell, and what TensorRT says of it; `plan_cache.py` engines that are kept;
* `sessions.py`  from a wish to an engine; `running.py` its session, `executing.py` one run (not run on a GPU);
* `recorded.py`  the session of an engine that was recorded elsewhere;
* `iotensors.py` inputs and outputs against a sample; `memory.py`, `decoding.py` addresses and bytes;
* `listening.py` what a listener hears.
"""
