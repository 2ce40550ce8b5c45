"""A module with TensorRT's Python interface whose behaviour is data. It executes nothing of TensorRT's.

What each version has and says stands in `facts.json`, each fact with its source or the rule by which it was made. What one engine
is (its network, its layers in the inspector's words, what the builder refuses, where it fails) stands in a scene, a folder that
`scenes.py` makes. Values come from ONNX Runtime, which runs the scene's `engine.onnx`: the network in the regions and precisions
of the scene's engine. Nothing that runs here proves anything of TensorRT itself: it proves what our side makes of such words.

* `facts.py`    which version has what; `module.py` the interface, and `building.py`, `running.py` its halves;
* `values.py`   what an engine computes, kept as files, so that old interpreters without ONNX Runtime replay them;
* `host.py`     memory of this process in the place of a device's: as CUDA's runtime library and as Polygraphy have it;
* `scenes.py`   ONNX model -> scene; `__main__.py` the recorder's command line over a scene.

All but `scenes.py` runs under Python 3.6, as the recorder does.
"""
