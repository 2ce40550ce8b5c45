"""`python -m proving.tensorrt_replay SCENE ...`: the recorder's command line, with a scene in the place of TensorRT."""

import importlib.util
import os
import sys

from proving.tensorrt_replay.host import Cudart
from proving.tensorrt_replay.module import open_replay

RECORDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recorder", "parityscope_tensorrt.py")


def load_recorder():
    """The recorder's one file as a module."""
    spec = importlib.util.spec_from_file_location("parityscope_tensorrt", RECORDER)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


if __name__ == "__main__":
    sys.exit(load_recorder().main(sys.argv[2:], trt=open_replay(sys.argv[1]), cudart=Cudart()))
