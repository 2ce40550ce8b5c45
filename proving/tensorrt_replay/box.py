"""A folder that makes a process believe in a GPU: CUDA's two libraries over the process's own memory, and a scene as `tensorrt`.

So that whole commands, with their child processes, meet the stand-in exactly where they would meet TensorRT: `import tensorrt`,
`libcuda.so.1` and `libcudart.so`. The libraries are compiled here; there is no device behind them, and nothing is computed.
"""

import os
import subprocess

# CUDA's calls as far as this project and Polygraphy make them; 2 is cudaErrorMemoryAllocation.
_CUDA = r"""
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static size_t used;
static size_t limit(void) { const char *told = getenv("REPLAY_MEMORY"); return told ? strtoull(told, 0, 10) : (size_t)1 << 40; }
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *number) { *number = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int size, int place) { snprintf(name, size, "a stand-in, and no GPU"); return 0; }
int cuDeviceTotalMem_v2(size_t *nbytes, int place) { *nbytes = limit(); return 0; }
int cuDeviceGetAttribute(int *number, int which, int place) { *number = which == 75 ? 8 : 9; return 0; }
int cuGetErrorString(int status, const char **words) { *words = "no words"; return 0; }
int cudaRuntimeGetVersion(int *number) { *number = 12060; return 0; }
int cudaDriverGetVersion(int *number) { *number = 13000; return 0; }
int cudaStreamCreate(void **stream) { *stream = (void *)7; return 0; }
int cudaStreamDestroy(void *stream) { return 0; }
int cudaStreamSynchronize(void *stream) { return 0; }
int cudaMalloc(void **address, size_t nbytes) {
    if (used + nbytes > limit() || !(*address = malloc(nbytes ? nbytes : 1))) return 2;
    used += malloc_usable_size(*address);
    return 0;
}
int cudaFree(void *address) { if (address) used -= malloc_usable_size(address); free(address); return 0; }
int cudaMemcpy(void *to, const void *from, size_t nbytes, int kind) { memcpy(to, from, nbytes); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { return cudaMemcpy(to, from, size, kind); }
"""
_MODULE = """
import sys
from proving.tensorrt_replay.module import open_replay
sys.modules[__name__] = open_replay({!r})
"""


def make_box(folder, scene, name="tensorrt"):
    """Writes the box of the scene in folder `scene`, whose module goes by `name`."""
    os.makedirs(folder, exist_ok=True)
    source, library = os.path.join(folder, "cuda.c"), os.path.join(folder, "libcuda.so.1")
    with open(source, "w") as file:
        file.write(_CUDA)
    subprocess.check_call(["gcc", "-shared", "-fPIC", "-w", "-o", library, source])
    os.symlink("libcuda.so.1", os.path.join(folder, "libcudart.so"))
    with open(os.path.join(folder, name + ".py"), "w") as file:
        file.write(_MODULE.format(os.path.abspath(scene)))
    return folder


def variables_of(folder):
    """The variables of a process that runs on the box."""
    paths = [folder] + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {"LD_LIBRARY_PATH": folder, "PYTHONPATH": os.pathsep.join(paths)}
