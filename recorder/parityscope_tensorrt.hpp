// Records what a TensorRT engine shows from inside, in a C++ program that runs it: debug tensors, layer information, environment.
//
// Copy this file and parityscope_recorder.hpp into your program: C++17, NvInfer.h (TensorRT 10 or later), CUDA's runtime.
//
//     parityscope::Recorder recording("recording");
//     parityscope::DebugListener listener;
//     context->setDebugListener(&listener);
//     context->setAllTensorsDebugState(true);                // tensors that were marked with INetworkDefinition::markDebug
//     context->setUnfusedTensorsDebugState(true);            // 10.12 and later: markUnfusedTensorsAsDebugTensors
//     recording.input("x", host_x, {1, 3, 224, 224});
//     context->enqueueV3(stream);                            // and cudaStreamSynchronize(stream)
//     recording.output("y", host_y, {1, 1000});
//     listener.record(recording);                            // every tensor that came, as intermediates
//     recording.commit();
//     parityscope::record_engine(*engine, listener, "recording");   // once: layers, versions, GPU
//
// Then, on another machine, with the model that the engine was built from:
//
//     parityscope diagnose model.onnx --inputs recording/inputs --candidate "saved?path=recording"
//
// It writes, beside what parityscope_recorder.hpp writes:
//
//     recording/engine/layers.json     the inspector's words (build with ProfilingVerbosity::kDETAILED, or they are names only)
//     recording/tensorrt.json          which tensors came, and how they were shown
//     recording/environment.json       TensorRT, CUDA, GPU and variables; nothing personal
//
// The names of debug tensors are the engine's; `saved` tells by the layers which values of the model they are. FP8, FP4 and E8M0
// become float32 and INT4 int8, which hold them exactly. A tensor that comes several times in a run (in a loop) is `h`, `h#1`, ...
// The listener is called by TensorRT while the engine runs: it copies what it is shown, and keeps an error for record().
//
// Written from the public C++ API reference of TensorRT 10; compiled by the tests against a stand-in of it, and not yet run with
// TensorRT itself.

#ifndef PARITYSCOPE_TENSORRT_HPP
#define PARITYSCOPE_TENSORRT_HPP

#include "parityscope_recorder.hpp"

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>

#if NV_TENSORRT_MAJOR < 10
#error "debug listeners came with TensorRT 10: record inputs and outputs with parityscope_recorder.hpp"
#endif

namespace parityscope {

namespace detail {

// How a type of TensorRT lies in memory, and what it is recorded as; `packed` are two elements a byte.
struct Stored {
    std::size_t bits;
    Type type;
};

inline bool at_least(int major, int minor) {
    return NV_TENSORRT_MAJOR > major || (NV_TENSORRT_MAJOR == major && NV_TENSORRT_MINOR >= minor);
}

// The values of the enumerators that came after 10.0 are written out, so that this compiles with every 10.x.
inline Stored stored_as(nvinfer1::DataType type) {
    switch (static_cast<int>(type)) {
        case static_cast<int>(nvinfer1::DataType::kFLOAT): return {32, Type::float32};
        case static_cast<int>(nvinfer1::DataType::kHALF): return {16, Type::float16};
        case static_cast<int>(nvinfer1::DataType::kBF16): return {16, Type::bfloat16};
        case static_cast<int>(nvinfer1::DataType::kINT8): return {8, Type::int8};
        case static_cast<int>(nvinfer1::DataType::kUINT8): return {8, Type::uint8};
        case static_cast<int>(nvinfer1::DataType::kINT32): return {32, Type::int32};
        case static_cast<int>(nvinfer1::DataType::kINT64): return {64, Type::int64};
        case static_cast<int>(nvinfer1::DataType::kBOOL): return {8, Type::boolean};
        case static_cast<int>(nvinfer1::DataType::kFP8): return {8, Type::float32};
        case static_cast<int>(nvinfer1::DataType::kINT4): return {4, Type::int8};
        case 10: if (at_least(10, 8)) return {4, Type::float32}; break;  // kFP4
        case 11: if (at_least(10, 12)) return {8, Type::float32}; break; // kE8M0
    }
    fail("TensorRT's type " + std::to_string(static_cast<int>(type)) + " is not known here", "take a newer recorder");
}

// float8 e4m3fn: a sign, four bits of exponent (bias 7), three of significand; all ones are NaN.
inline float from_fp8(unsigned bits) {
    const int exponent = static_cast<int>((bits >> 3) & 15u);
    const float fraction = static_cast<float>(bits & 7u) / 8.0f;
    float size = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1.0f + fraction, exponent - 7);
    if ((bits & 127u) == 127u) size = std::numeric_limits<float>::quiet_NaN();
    return (bits & 128u) ? -size : size;
}

inline float from_fp4(unsigned bits) {
    constexpr std::array<float, 8> sizes{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return (bits & 8u) ? -sizes[bits & 7u] : sizes[bits & 7u];
}

inline float from_e8m0(unsigned bits) {
    return bits == 255u ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

inline void check_cuda(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        fail(std::string(what) + " fails: " + cudaGetErrorString(status), "look at the driver with nvidia-smi");
    }
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
    const std::filesystem::path temporary = path.string() + ".part";
    {
        std::ofstream file(temporary, std::ios::binary);
        file << text;
        file.close();
        if (!file) fail("writing " + temporary.string() + " failed", "free space on this disk");
    }
    std::filesystem::rename(temporary, path);
}

} // namespace detail

// Keeps a copy of every tensor that the engine shows, until record() or clear().
class DebugListener final : public nvinfer1::IDebugListener {
public:
    bool processDebugTensor(const void* address, nvinfer1::TensorLocation location, nvinfer1::DataType type,
                            const nvinfer1::Dims& shape, const char* name, cudaStream_t stream) override {
        try {
            hold(address, location, type, shape, name, stream);
        } catch (const std::exception& error) { // nothing may be thrown into TensorRT
            if (problem_.empty()) problem_ = error.what();
            return false;
        }
        return true;
    }

    // Puts what came since the last call into the sample that `recording` is at, and forgets it.
    void record(Recorder& recording) {
        if (!problem_.empty()) {
            const std::string problem = problem_;
            clear();
            throw std::runtime_error(problem);
        }
        std::map<std::string, int> times;
        for (const Held& one : held_) {
            const int before = times[one.name]++;
            const std::string name = before ? one.name + "#" + std::to_string(before) : one.name;
            put(recording, name, one);
            seen_[name] = true;
        }
        held_.clear();
    }

    // Forgets what came, and an error.
    void clear() {
        held_.clear();
        problem_.clear();
    }

    // The names that were recorded, in order.
    std::vector<std::string> seen() const {
        std::vector<std::string> names;
        for (const auto& one : seen_) names.push_back(one.first);
        return names;
    }

private:
    struct Held {
        std::string name;
        nvinfer1::DataType type;
        Shape shape;
        std::vector<unsigned char> bytes;
    };

    void hold(const void* address, nvinfer1::TensorLocation location, nvinfer1::DataType type, const nvinfer1::Dims& shape,
              const char* name, cudaStream_t stream) {
        Held one{name, type, Shape(shape.d, shape.d + shape.nbDims), {}};
        const std::uint64_t count = detail::count_elements(one.name, one.shape);
        one.bytes.resize(static_cast<std::size_t>((count * detail::stored_as(type).bits + 7) / 8));
        if (location == nvinfer1::TensorLocation::kHOST) {
            detail::check_cuda(cudaStreamSynchronize(stream), "waiting for the stream");
            if (!one.bytes.empty()) std::memcpy(one.bytes.data(), address, one.bytes.size());
        } else {
            // The memory holds the tensor only until this returns.
            detail::check_cuda(cudaMemcpyAsync(one.bytes.data(), address, one.bytes.size(), cudaMemcpyDeviceToHost, stream),
                               "copying a debug tensor");
            detail::check_cuda(cudaStreamSynchronize(stream), "waiting for a debug tensor");
        }
        held_.push_back(std::move(one));
    }

    static void put(Recorder& recording, const std::string& name, const Held& one) {
        const detail::Stored stored = detail::stored_as(one.type);
        const bool widened = stored.bits < 8 || (stored.bits == 8 && stored.type == Type::float32);
        if (!widened) {
            recording.intermediate(name, static_cast<const void*>(one.bytes.data()), one.shape, stored.type);
            return;
        }
        const auto count = static_cast<std::size_t>(detail::count_elements(name, one.shape));
        std::vector<float> numbers(stored.type == Type::float32 ? count : 0);
        std::vector<std::int8_t> integers(stored.type == Type::int8 ? count : 0);
        for (std::size_t index = 0; index < count; ++index) {
            const unsigned byte = one.bytes[stored.bits == 4 ? index / 2 : index];
            const unsigned bits = stored.bits == 4 ? (index % 2 ? byte >> 4 : byte & 15u) : byte;
            if (stored.type == Type::int8) integers[index] = static_cast<std::int8_t>(static_cast<int>(bits ^ 8u) - 8);
            else if (stored.bits == 4) numbers[index] = detail::from_fp4(bits);
            else numbers[index] = one.type == nvinfer1::DataType::kFP8 ? detail::from_fp8(bits) : detail::from_e8m0(bits);
        }
        if (stored.type == Type::int8) recording.intermediate(name, integers.data(), one.shape);
        else recording.intermediate(name, numbers.data(), one.shape);
    }

    std::vector<Held> held_;
    std::map<std::string, bool> seen_;
    std::string problem_;
};

// Writes the engine's layers, what the listener was shown, and the environment into the directory of a recording.
// `way` is how the builder was asked to show tensors: "unfused" (markUnfusedTensorsAsDebugTensors) or "debug" (markDebug).
inline void record_engine(const nvinfer1::ICudaEngine& engine, const DebugListener& listener,
                          const std::filesystem::path& directory, const std::string& way = "unfused") {
    std::filesystem::create_directories(directory / "engine");
    const std::unique_ptr<nvinfer1::IEngineInspector> inspector(engine.createEngineInspector());
    const char* layers =
        inspector ? inspector->getEngineInformation(nvinfer1::LayerInformationFormat::kJSON) : nullptr;
    if (!layers) detail::fail("TensorRT's inspector says nothing of the engine", "look at TensorRT's own log");
    detail::write_file(directory / "engine" / "layers.json", layers);

    const std::string version = std::to_string(NV_TENSORRT_MAJOR) + "." + std::to_string(NV_TENSORRT_MINOR) + "." +
                                std::to_string(NV_TENSORRT_PATCH) + "." + std::to_string(NV_TENSORRT_BUILD);
    std::string seen, names;
    for (const std::string& name : listener.seen()) {
        seen += (seen.empty() ? "" : ", ") + detail::json_string(name);
        if (way == "debug") names += (names.empty() ? "" : ", ") + detail::json_string(name) + ": " + detail::json_string(name);
    }
    detail::write_file(directory / "tensorrt.json",
                       "{\n \"schema\": \"parityscope-tensorrt/1\",\n \"made_by\": \"TensorRT\",\n"
                       " \"product\": \"tensorrt\",\n \"version\": \"" + version + "\",\n \"arguments\": {},\n"
                       " \"precision\": \"\",\n \"typing\": \"\",\n \"way\": " + detail::json_string(way) +
                       ",\n \"parts\": [{\"number\": 0, \"beside\": true, \"way\": " + detail::json_string(way) +
                       ", \"refused\": [], \"names\": {" + names + "}, \"seen\": [" + seen +
                       "], \"disturbance\": null}],\n \"finished\": true\n}\n");

    std::string facts = "{\n \"tensorrt\": " + detail::json_string(version);
    const auto told = [&facts](const char* key, const std::string& value) {
        facts += ",\n " + detail::json_string(key) + ": " + detail::json_string(value);
    };
    int number = 0;
    const auto dotted = [](int of) { return std::to_string(of / 1000) + "." + std::to_string(of % 1000 / 10); };
    if (cudaRuntimeGetVersion(&number) == cudaSuccess) told("cuda", dotted(number));
    if (cudaDriverGetVersion(&number) == cudaSuccess) told("cuda driver", dotted(number));
    cudaDeviceProp gpu{};
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&gpu, device) == cudaSuccess) {
        told("gpu", gpu.name);
        told("compute capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor));
    }
    for (const char* name : {"NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"}) {
        const char* value = std::getenv(name);
        told(name, value ? value : "not set");
    }
    detail::write_file(directory / "environment.json", facts + "\n}\n");
}

} // namespace parityscope

#endif // PARITYSCOPE_TENSORRT_HPP
