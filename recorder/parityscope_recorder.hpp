// Records what a deployed model really gets and gives, for `parityscope diagnose` to read on another machine.
//
// Copy this one file into your program: C++17, standard library only (GCC, Clang, MSVC).
//
//     parityscope::Recorder recording("recording");
//     recording.input("x", input_pointer, {1, 3, 224, 224});         // names as in the ONNX model, host memory
//     recording.output("y", output_pointer, {1, 1000});
//     recording.intermediate("/conv1/Conv_output_0", half_pointer, {1, 64, 112, 112}, parityscope::Type::float16);
//     recording.commit();                                            // the sample is complete: once per inference
//
// It writes the layout that parityscope_recorder.py writes:
//
//     recording/inputs/000000.npz     inputs by name
//     recording/outputs/000000.npz    outputs and intermediate tensors by name
//     recording/manifest.json         which is which; dtypes and shapes of the first sample; nothing personal
//
// Values are written at each call, so buffers may be used again at once, and no second copy is held in memory (except
// of bfloat16, which numpy lacks: it is widened to float32, exactly). A sample is written in a directory `000000.part`
// and moved by commit(), its outputs first, so each file in inputs/ has its twin in outputs/. A Recorder that is destroyed
// or fails before commit() drops its sample. One Recorder serves one thread; several may share a directory if they
// record the same tensors. Everything that goes wrong is a std::runtime_error whose message ends with the fix.
//
// Formats: ZIP APPNOTE 6.3.9 (method "stored", UTF-8 names, zip64 from 4 GiB on) and numpy's NPY format 1.0.

#ifndef PARITYSCOPE_RECORDER_HPP
#define PARITYSCOPE_RECORDER_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

// Sizes and offsets from here on are written in zip64's 8-byte fields; smaller only to test those.
#ifndef PARITYSCOPE_ZIP64_FROM
#define PARITYSCOPE_ZIP64_FROM 0xFFFFFFFFu
#endif

namespace parityscope {

enum class Type {
    float16,  // IEEE 754 binary16 bits: __half, _Float16, uint16_t
    bfloat16, // the upper half of a float's bits: __nv_bfloat16, uint16_t
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    boolean, // one byte an element, 0 or 1
};

using Shape = std::vector<std::int64_t>;

namespace detail {

[[noreturn]] inline void fail(const std::string& problem, const std::string& fix) {
    throw std::runtime_error(problem + "\n  fix: " + fix);
}

struct Format {
    const char* name; // numpy's
    const char* code; // of the npy header, without the byte order
    std::size_t size; // bytes an element takes in the program's memory
};

inline Format format_of(Type type) {
    switch (type) {
        case Type::float16: return {"float16", "f2", 2};
        case Type::bfloat16: return {"float32", "f4", 2};
        case Type::float32: return {"float32", "f4", 4};
        case Type::float64: return {"float64", "f8", 8};
        case Type::int8: return {"int8", "i1", 1};
        case Type::int16: return {"int16", "i2", 2};
        case Type::int32: return {"int32", "i4", 4};
        case Type::int64: return {"int64", "i8", 8};
        case Type::uint8: return {"uint8", "u1", 1};
        case Type::uint16: return {"uint16", "u2", 2};
        case Type::uint32: return {"uint32", "u4", 4};
        case Type::uint64: return {"uint64", "u8", 8};
        case Type::boolean: return {"bool", "b1", 1};
    }
    fail("the element type " + std::to_string(static_cast<int>(type)) + " is unknown", "use a value of parityscope::Type");
}

template <class T>
constexpr Type type_of() {
    static_assert(!std::is_same_v<T, char>, "char may be signed or not: use std::int8_t or std::uint8_t");
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "pass a pointer and a parityscope::Type instead");
    if constexpr (std::is_same_v<T, bool>) {
        static_assert(sizeof(bool) == 1, "bool must be one byte");
        return Type::boolean;
    } else if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 4 ? Type::float32 : Type::float64;
    } else if constexpr (std::is_signed_v<T>) { // by size: int64_t is long here and long long there
        return sizeof(T) == 1 ? Type::int8 : sizeof(T) == 2 ? Type::int16 : sizeof(T) == 4 ? Type::int32 : Type::int64;
    } else {
        return sizeof(T) == 1 ? Type::uint8 : sizeof(T) == 2 ? Type::uint16 : sizeof(T) == 4 ? Type::uint32 : Type::uint64;
    }
}

inline bool is_little_endian() {
    const std::uint16_t one = 1;
    unsigned char first = 0;
    std::memcpy(&first, &one, 1);
    return first == 1;
}

inline std::uint64_t count_elements(const std::string& name, const Shape& shape) {
    // 32 dimensions: the most that every numpy reads. 2^59 elements: 8 bytes each stay far from 64 bits.
    if (shape.size() > 32) fail("tensor \"" + name + "\" has more than 32 dimensions", "merge some of them");
    std::uint64_t count = 1;
    bool is_empty = false;
    for (const std::int64_t dimension : shape) {
        if (dimension < 0) {
            fail("tensor \"" + name + "\" has the dimension " + std::to_string(dimension),
                 "pass the real shape of this run, without -1 for what is dynamic");
        }
        is_empty = is_empty || dimension == 0;
        const std::uint64_t factor = dimension == 0 ? 1 : static_cast<std::uint64_t>(dimension);
        if (count > (std::uint64_t{1} << 59) / factor) fail("tensor \"" + name + "\" is too large", "check its shape");
        count *= factor;
    }
    return is_empty ? 0 : count;
}

// UTF-8 by structure: lead bytes followed by the right number of continuation bytes.
inline bool is_utf8(const std::string& text) {
    std::size_t left = 0;
    for (const char character : text) {
        const auto byte = static_cast<unsigned char>(character);
        if (left > 0) {
            if ((byte & 0xC0u) != 0x80u) return false;
            --left;
        } else if (byte >= 0x80u) {
            if (byte < 0xC2u || byte > 0xF4u) return false;
            left = byte >= 0xF0u ? 3 : byte >= 0xE0u ? 2 : 1;
        }
    }
    return left == 0;
}

inline void check_name(const std::string& name) {
    const bool ends_in_npy = name.size() >= 4 && name.compare(name.size() - 4, 4, ".npy") == 0;
    if (name.empty() || name.size() > 60000 || ends_in_npy || name.find('\0') != std::string::npos || !is_utf8(name)) {
        fail("\"" + name + "\" cannot be the name of a tensor",
             "use the tensor's name in the ONNX model, in UTF-8: not empty, not ending in .npy");
    }
}

inline std::string json_string(const std::string& text) {
    std::string quoted = "\"";
    for (const char character : text) {
        if (character == '"' || character == '\\') {
            quoted += '\\';
            quoted += character;
        } else if (static_cast<unsigned char>(character) < 0x20u) {
            std::array<char, 8> escaped{};
            std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(character));
            quoted += escaped.data();
        } else {
            quoted += character;
        }
    }
    return quoted + "\"";
}

inline std::string npy_header(const Format& format, const Shape& shape) {
    std::string dimensions;
    for (const std::int64_t dimension : shape) dimensions += std::to_string(dimension) + ", ";
    if (shape.size() > 1) dimensions.resize(dimensions.size() - 2); // (3, ) but (1, 3): as numpy writes and reads
    const char order = format.code[1] == '1' ? '|' : is_little_endian() ? '<' : '>';
    std::string text = std::string("{'descr': '") + order + format.code + "', 'fortran_order': False, 'shape': (" +
                       dimensions + "), }";
    const std::size_t prefix = 10; // magic, version and length
    text.append(63 - (prefix + text.size()) % 64, ' '); // with the newline a multiple of 64, as the format asks
    text += '\n';
    std::string header("\x93NUMPY\x01\x00", 8);
    header += static_cast<char>(text.size() & 0xFFu);
    header += static_cast<char>(text.size() >> 8); // 32 dimensions take at most 672 bytes, so version 1.0 is enough
    return header + text;
}

// CRC-32 as ZIP uses it: reflected polynomial 0xEDB88320; `crc` is that of what came before, 0 at the start.
inline std::uint32_t crc32(std::uint32_t crc, const void* data, std::uint64_t size) {
    static const std::array<std::uint32_t, 256> table = [] {
        std::array<std::uint32_t, 256> made{};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t value = byte;
            for (int bit = 0; bit < 8; ++bit) value = (value & 1u) != 0 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
            made[byte] = value;
        }
        return made;
    }();
    const auto* bytes = static_cast<const unsigned char*>(data);
    crc = ~crc;
    for (std::uint64_t index = 0; index < size; ++index) crc = table[(crc ^ bytes[index]) & 0xFFu] ^ (crc >> 8);
    return ~crc;
}

// Little-endian fields of a zip record.
class Record {
public:
    Record& u16(std::uint64_t value) { return put(value, 2); }
    Record& u32(std::uint64_t value) { return put(value, 4); }
    Record& u64(std::uint64_t value) { return put(value, 8); }
    Record& text(const std::string& bytes) {
        bytes_ += bytes;
        return *this;
    }
    const std::string& bytes() const { return bytes_; }

private:
    Record& put(std::uint64_t value, int size) {
        for (int byte = 0; byte < size; ++byte) bytes_ += static_cast<char>((value >> (8 * byte)) & 0xFFu);
        return *this;
    }
    std::string bytes_;
};

// An npz file that is being written, member by member; it can be read after close().
class NpzFile {
public:
    explicit NpzFile(std::filesystem::path path) : path_(std::move(path)), file_(path_, std::ios::binary) {
        if (!file_) fail("cannot write " + path_.string(), "check that the directory exists and may be written to");
    }

    void add(const std::string& name, const std::string& header, const void* data, std::uint64_t size) {
        Member member;
        member.name = name + ".npy";
        member.offset = offset_;
        member.size = header.size() + size;
        member.crc = crc32(crc32(0, header.data(), header.size()), data, size);
        const bool is_large = is_wide(member.size);
        Record extra;
        if (is_large) extra.u16(0x0001).u16(16).u64(member.size).u64(member.size); // zip64: real sizes
        Record local;
        local.u32(0x04034B50).text(common(member, is_large)).u16(member.name.size()).u16(extra.bytes().size());
        write(local.text(member.name).text(extra.bytes()).bytes());
        write(header);
        write(data, size);
        members_.push_back(std::move(member));
    }

    void close() {
        const std::uint64_t start = offset_;
        for (const Member& member : members_) {
            const bool is_large = is_wide(member.size);
            const bool is_far = is_wide(member.offset);
            Record fields; // zip64: those fields whose place in the record is full, in this order
            if (is_large) fields.u64(member.size).u64(member.size);
            if (is_far) fields.u64(member.offset);
            Record extra;
            if (is_large || is_far) extra.u16(0x0001).u16(fields.bytes().size()).text(fields.bytes());
            Record central;
            central.u32(0x02014B50).u16(45).text(common(member, is_large || is_far));
            central.u16(member.name.size()).u16(extra.bytes().size()).u16(0).u16(0).u16(0).u32(0);
            central.u32(is_far ? full_ : member.offset).text(member.name).text(extra.bytes());
            write(central.bytes());
        }
        finish(start, offset_ - start);
        file_.close();
        check();
    }

private:
    struct Member {
        std::string name;
        std::uint64_t offset = 0;
        std::uint64_t size = 0;
        std::uint32_t crc = 0;
    };

    static constexpr std::uint64_t full_ = 0xFFFFFFFFu; // in a field: the value is in the zip64 record

    static bool is_wide(std::uint64_t value) { return value >= PARITYSCOPE_ZIP64_FROM; }

    // What a local and a central header share, from "version needed" to the sizes.
    static std::string common(const Member& member, bool is_zip64) {
        const std::uint64_t utf8_names = 0x0800;
        const std::uint64_t first_of_january_1980 = 0x0021; // a fixed date: equal samples give equal files
        const std::uint64_t size = is_wide(member.size) ? full_ : member.size;
        Record record;
        record.u16(is_zip64 ? 45 : 20).u16(utf8_names).u16(0).u16(0).u16(first_of_january_1980);
        return record.u32(member.crc).u32(size).u32(size).bytes();
    }

    void finish(std::uint64_t start, std::uint64_t size) {
        const std::uint64_t count = members_.size();
        const bool is_zip64 = is_wide(start) || is_wide(size) || count >= 0xFFFF;
        const std::uint64_t end = offset_;
        Record record;
        if (is_zip64) {
            record.u32(0x06064B50).u64(44).u16(45).u16(45).u32(0).u32(0).u64(count).u64(count).u64(size).u64(start);
            record.u32(0x07064B50).u32(0).u64(end).u32(1);
        }
        const std::uint64_t short_count = is_zip64 ? 0xFFFF : count;
        record.u32(0x06054B50).u16(0).u16(0).u16(short_count).u16(short_count);
        write(record.u32(is_zip64 ? full_ : size).u32(is_zip64 ? full_ : start).u16(0).bytes());
    }

    void write(const std::string& bytes) { write(bytes.data(), bytes.size()); }

    void write(const void* data, std::uint64_t size) {
        const std::uint64_t block = std::uint64_t{1} << 26; // some C libraries fail on one write of 2 GiB
        const auto* bytes = static_cast<const char*>(data);
        for (std::uint64_t done = 0; done < size; done += block) {
            const std::uint64_t left = size - done;
            file_.write(bytes + done, static_cast<std::streamsize>(left < block ? left : block));
        }
        offset_ += size;
        check();
    }

    void check() const {
        if (!file_) fail("writing " + path_.string() + " failed", "free space on this disk, or record to another one");
    }

    std::filesystem::path path_;
    std::ofstream file_;
    std::uint64_t offset_ = 0;
    std::vector<Member> members_;
};

} // namespace detail

class Recorder {
public:
    // Makes the directory, or continues the recording in it behind its last sample.
    explicit Recorder(std::filesystem::path directory) : directory_(std::move(directory)) {
        std::error_code error;
        for (const char* folder : {"inputs", "outputs"}) {
            std::filesystem::create_directories(directory_ / folder, error);
            if (error) {
                detail::fail("cannot make " + (directory_ / folder).string() + ": " + error.message(),
                             "record into a directory that this program may write to");
            }
        }
        check_twins();
    }
    ~Recorder() { drop(); }
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    template <class T>
    void input(const std::string& name, const T* data, const Shape& shape) {
        add(Kind::input, name, data, shape, detail::type_of<T>());
    }
    void input(const std::string& name, const void* data, const Shape& shape, Type type) {
        add(Kind::input, name, data, shape, type);
    }

    template <class T>
    void output(const std::string& name, const T* data, const Shape& shape) {
        add(Kind::output, name, data, shape, detail::type_of<T>());
    }
    void output(const std::string& name, const void* data, const Shape& shape, Type type) {
        add(Kind::output, name, data, shape, type);
    }

    template <class T>
    void intermediate(const std::string& name, const T* data, const Shape& shape) {
        add(Kind::intermediate, name, data, shape, detail::type_of<T>());
    }
    void intermediate(const std::string& name, const void* data, const Shape& shape, Type type) {
        add(Kind::intermediate, name, data, shape, type);
    }

    // Completes the sample and gives its number.
    std::uint64_t commit() {
        try {
            const std::uint64_t number = publish();
            drop();
            return number;
        } catch (...) {
            drop();
            throw;
        }
    }

private:
    enum class Kind { input, output, intermediate };

    struct Tensor {
        Kind kind;
        std::string name;
        Type type;
        Shape shape;
    };

    void add(Kind kind, const std::string& name, const void* data, const Shape& shape, Type type) {
        try {
            detail::check_name(name);
            for (const Tensor& tensor : sample_) {
                if (tensor.name == name && (tensor.kind == Kind::input) == (kind == Kind::input)) {
                    detail::fail("tensor \"" + name + "\" was given twice", "call commit() after each inference");
                }
            }
            const std::uint64_t count = detail::count_elements(name, shape);
            if (data == nullptr && count > 0) {
                detail::fail("tensor \"" + name + "\" has no data (null pointer)", "pass its host buffer");
            }
            if (staging_.empty()) claim();
            std::optional<detail::NpzFile>& file = kind == Kind::input ? inputs_ : outputs_;
            if (!file) file.emplace(staging_ / (kind == Kind::input ? "inputs.npz" : "outputs.npz"));
            const detail::Format format = detail::format_of(type);
            const std::string header = detail::npy_header(format, shape);
            if (type == Type::bfloat16) {
                const std::vector<std::uint32_t> wide = widened(data, count);
                file->add(name, header, wide.data(), count * sizeof(std::uint32_t));
            } else {
                file->add(name, header, data, count * format.size);
            }
            sample_.push_back(Tensor{kind, name, type, shape});
        } catch (...) {
            drop();
            throw;
        }
    }

    // The bits of the floats whose upper halves are the bfloat16 elements.
    static std::vector<std::uint32_t> widened(const void* data, std::uint64_t count) {
        std::vector<std::uint32_t> wide(static_cast<std::size_t>(count));
        const auto* bytes = static_cast<const unsigned char*>(data);
        for (std::size_t index = 0; index < wide.size(); ++index) {
            std::uint16_t half = 0;
            std::memcpy(&half, bytes + 2 * index, sizeof half);
            wide[index] = static_cast<std::uint32_t>(half) << 16;
        }
        return wide;
    }

    static std::string numbered(std::uint64_t number, const char* suffix) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%06llu", static_cast<unsigned long long>(number));
        return text.data() + std::string(suffix);
    }

    // Refuses to go on behind half a sample: readers pair files by their order, so all that follow would be shifted.
    void check_twins() const {
        for (const auto& entry : std::filesystem::directory_iterator(directory_ / "outputs")) {
            const std::filesystem::path twin = directory_ / "inputs" / entry.path().filename();
            if (std::filesystem::exists(twin)) continue;
            std::this_thread::sleep_for(std::chrono::milliseconds(200)); // another recorder may be moving it just now
            if (!std::filesystem::exists(twin)) {
                detail::fail(entry.path().string() + " has no twin in inputs: a program was killed while it recorded",
                             "delete " + entry.path().string());
            }
        }
    }

    // Takes the next number: making its staging directory is atomic, so two recorders never get the same one.
    void claim() {
        while (std::filesystem::exists(directory_ / "inputs" / numbered(next_, ".npz"))) ++next_;
        for (; next_ < 1000000; ++next_) { // six digits, so that the order of the names is the order of the samples
            const std::filesystem::path staging = directory_ / numbered(next_, ".part");
            std::error_code error;
            if (std::filesystem::create_directory(staging, error)) {
                staging_ = staging;
                if (!std::filesystem::exists(directory_ / "inputs" / numbered(next_, ".npz"))) return;
                drop(); // another recorder finished this number between the two questions
            } else if (error && !std::filesystem::exists(staging)) {
                detail::fail("cannot make " + staging.string() + ": " + error.message(), "check rights and disk space");
            }
        }
        detail::fail(directory_.string() + " holds 1000000 samples, which is the limit", "use another directory");
    }

    std::uint64_t publish() {
        if (!inputs_ || !outputs_) {
            detail::fail("a sample needs at least one input and one output", "call input() and output() before commit()");
        }
        std::vector<std::string> names;
        for (const Tensor& tensor : sample_) {
            const char* kind = tensor.kind == Kind::input ? "i:" : tensor.kind == Kind::output ? "o:" : "t:";
            names.push_back(kind + tensor.name + ":" + detail::format_of(tensor.type).name);
        }
        if (!first_.empty() && names != first_) {
            detail::fail("this sample's tensors are not those of the first one",
                         "record the same tensors in the same order each time, or use another directory");
        }
        inputs_->close();
        outputs_->close();
        if (!std::filesystem::exists(directory_ / "manifest.json")) write_manifest();
        for (const char* folder : {"outputs", "inputs"}) {
            const std::filesystem::path written = staging_ / (std::string(folder) + ".npz");
            std::filesystem::rename(written, directory_ / folder / numbered(next_, ".npz"));
        }
        first_ = std::move(names);
        return next_++;
    }

    void write_manifest() const {
        const std::filesystem::path temporary = staging_ / "manifest.json";
        {
            std::ofstream file(temporary, std::ios::binary);
            file << manifest();
            file.close();
            if (!file) detail::fail("writing " + temporary.string() + " failed", "free space on this disk");
        }
        std::filesystem::rename(temporary, directory_ / "manifest.json");
    }

    std::string manifest() const {
        std::string lists;
        std::string described;
        const std::array<std::pair<Kind, const char*>, 3> kinds{
            {{Kind::input, "inputs"}, {Kind::output, "outputs"}, {Kind::intermediate, "intermediates"}}};
        std::string widened;
        for (const auto& [kind, title] : kinds) {
            std::string names;
            std::string entries;
            for (const Tensor& tensor : sample_) {
                if (tensor.kind != kind) continue;
                const std::string name = detail::json_string(tensor.name);
                std::string shape;
                for (const std::int64_t size : tensor.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
                names += (names.empty() ? "" : ", ") + name;
                entries += (entries.empty() ? "" : ", ") + name + ": {\"dtype\": \"" +
                           detail::format_of(tensor.type).name + "\", \"shape\": [" + shape + "]}";
                if (tensor.type == Type::bfloat16) widened += (widened.empty() ? "" : ", ") + name + ": \"bfloat16\"";
            }
            lists += std::string("  \"") + title + "\": [" + names + "],\n";
            described += std::string(described.empty() ? "" : ",\n") + "    \"" + title + "\": {" + entries + "}";
        }
        return "{\n  \"schema\": \"parityscope-recording/1\",\n" + lists + "  \"first_sample\": {\n" + described +
               "\n  },\n  \"widened_to_float32\": {" + widened +
               "},\n  \"recorder\": {\"language\": \"c++\"}\n}\n";
    }

    // Forgets the sample that is not committed (nothing is left of one that is) and removes its staging directory.
    void drop() noexcept {
        inputs_.reset(); // closes the files: Windows does not remove open ones
        outputs_.reset();
        sample_.clear();
        if (!staging_.empty()) {
            std::error_code ignored;
            std::filesystem::remove_all(staging_, ignored);
            staging_.clear();
        }
    }

    std::filesystem::path directory_;
    std::filesystem::path staging_; // empty: no sample is begun
    std::uint64_t next_ = 0;
    std::optional<detail::NpzFile> inputs_;
    std::optional<detail::NpzFile> outputs_;
    std::vector<Tensor> sample_;
    std::vector<std::string> first_; // what the first committed sample held
};

} // namespace parityscope

#endif // PARITYSCOPE_RECORDER_HPP
