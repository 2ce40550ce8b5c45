// A stand-in of NvInfer.h with the few declarations that recorder/parityscope_tensorrt.hpp calls. It is not NVIDIA's: made from
// the public C++ API reference of TensorRT 10 (https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/c-api/), so that a
// test can compile the recorder. Nothing that compiles against it proves anything of TensorRT.
#ifndef NV_INFER_H
#define NV_INFER_H

#include <cuda_runtime_api.h>

#include <cstdint>

#ifndef NV_TENSORRT_MAJOR
#define NV_TENSORRT_MAJOR 10
#define NV_TENSORRT_MINOR 13
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_BUILD 35
#endif

namespace nvinfer1 {

enum class DataType : int32_t { kFLOAT = 0, kHALF, kINT8, kINT32, kBOOL, kUINT8, kFP8, kBF16, kINT64, kINT4, kFP4, kE8M0 };
enum class TensorLocation : int32_t { kDEVICE = 0, kHOST = 1 };
enum class LayerInformationFormat : int32_t { kONELINE = 0, kJSON = 1 };

struct Dims {
    int32_t nbDims;
    int64_t d[8];
};

class IDebugListener {
public:
    virtual ~IDebugListener() = default;
    virtual bool processDebugTensor(void const* addr, TensorLocation location, DataType type, Dims const& shape,
                                    char const* name, cudaStream_t stream) = 0;
};

class IEngineInspector {
public:
    virtual ~IEngineInspector() noexcept = default;
    virtual char const* getEngineInformation(LayerInformationFormat format) const noexcept = 0;
};

class ICudaEngine {
public:
    virtual ~ICudaEngine() noexcept = default;
    virtual IEngineInspector* createEngineInspector() const noexcept = 0;
};

} // namespace nvinfer1

#endif
