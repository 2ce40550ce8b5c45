// A stand-in of CUDA's runtime with the calls that recorder/parityscope_tensorrt.hpp makes, over the process's own memory. It is
// not NVIDIA's: made from the public CUDA Runtime API reference (https://docs.nvidia.com/cuda/cuda-runtime-api/).
#ifndef CUDA_RUNTIME_API_H
#define CUDA_RUNTIME_API_H

#include <cstddef>
#include <cstring>

enum cudaError { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
using cudaError_t = cudaError;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
struct CUstream_st;
using cudaStream_t = CUstream_st*;

struct cudaDeviceProp {
    char name[256];
    int major;
    int minor;
};

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }
inline cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t count, cudaMemcpyKind, cudaStream_t) {
    if (!source) return cudaErrorMemoryAllocation;
    if (count) std::memcpy(target, source, count);
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { *version = 12060; return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { *version = 12080; return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* told, int) {
    std::strcpy(told->name, "stand-in GPU");
    told->major = 8;
    told->minor = 6;
    return cudaSuccess;
}

#endif
