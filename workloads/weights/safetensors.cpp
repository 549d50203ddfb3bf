#include "workloads/weights/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/base/error.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::workloads {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostHeader = 100'000'000;  // bytes, as the format's own reader allows
constexpr int kMostDepth = 4;

const std::map<std::string, std::size_t, std::less<>>& TypeBytes() {
  static const std::map<std::string, std::size_t, std::less<>> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  return kBytes;
}

// Refuses JSON that repeats a key or is nested deeper than any header.
json ParseHeader(std::string_view text, std::string& problem) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMostDepth) problem = "its header is nested too deep";
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      problem = "it has \"" + value.get<std::string>() + "\" twice";
    return problem.empty();
  };
  json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (problem.empty() && !header.is_object()) problem = "its header is not a JSON object";
  return header;
}

std::string ReadTensor(const std::string& name, const json& said,
                       std::span<const std::uint8_t> data, StoredTensor& tensor) {
  const auto whole = [](const json& value) { return value.is_number_unsigned(); };
  const bool good =
      said.is_object() && said.value("dtype", json()).is_string() &&
      said.value("shape", json()).is_array() && std::ranges::all_of(said["shape"], whole) &&
      said.value("data_offsets", json()).is_array() && said["data_offsets"].size() == 2 &&
      std::ranges::all_of(said["data_offsets"], whole);
  if (!good) return "\"" + name + "\" lacks dtype, shape or data_offsets";
  tensor.name = name;
  tensor.type = said["dtype"].get<std::string>();
  const auto width = TypeBytes().find(tensor.type);
  if (width == TypeBytes().end()) return "\"" + name + "\" has the unknown type " + tensor.type;
  std::uint64_t bytes = width->second;
  for (const json& each : said["shape"]) {
    const auto extent = each.get<std::uint64_t>();
    if (extent != 0 && bytes > data.size() / extent) {
      return "\"" + name + "\" is larger than the file";
    }
    bytes *= extent;
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const auto begin = said["data_offsets"][0].get<std::uint64_t>();
  const auto end = said["data_offsets"][1].get<std::uint64_t>();
  if (begin > end || end > data.size() || end - begin != bytes) {
    return "\"" + name + "\" has data_offsets " + said["data_offsets"].dump() + " and a shape of " +
           std::to_string(bytes) + " bytes";
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return "";
}

float OfHalf(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

std::uint64_t SizeOfFile(const fs::path& file) {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(file, error);
  if (!error) return bytes;
  SPARFUSE_THROW(kData, file.string() + ": " + error.message() +
                            "; `sparfuse weights prepare NAME --from FILE` makes it");
}

}  // namespace

fs::path WeightsFile(const fs::path& data_directory, std::string_view name) {
  if (name.find('/') != std::string_view::npos) return fs::path(name);
  return data_directory / "weights" / (std::string(name) + ".safetensors");
}

std::size_t StoredTensor::numel() const {
  std::size_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

std::vector<float> ValuesOf(const StoredTensor& tensor) {
  std::vector<float> values(tensor.numel());
  if (tensor.type == "F32") {
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.type == "F16" || tensor.type == "BF16") {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
      values[i] = tensor.type == "F16"
                      ? OfHalf(bits)
                      : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
  } else {
    SPARFUSE_THROW(kData, "weights: " + tensor.name + " is of type " + tensor.type +
                              ", expected F32, F16 or BF16");
  }
  const auto bad =
      std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    SPARFUSE_THROW(kData, "weights: element " + std::to_string(bad - values.begin()) + " of " +
                              tensor.name + " is " + std::to_string(*bad) +
                              ", expected a finite number");
  }
  return values;
}

std::string ReadSafeTensors(std::span<const std::uint8_t> bytes,
                            std::vector<StoredTensor>& tensors) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<std::size_t>(bytes.size(), 64));
  // The length of a header may begin like another format: with 0x80 like a pickle, or with "PK".
  const bool header_begins = start.size() > 8 && start[8] == '{';
  if (start.starts_with("version https://git-lfs")) {
    return "it is a pointer of Git LFS instead of the file; `git lfs pull` fetches the file";
  }
  if (!header_begins && start.starts_with("<"))
    return "it is a page of HTML; was the download refused?";
  if (!header_begins && (start.starts_with("PK") || start.starts_with("\x80"))) {
    return "it is a file of PyTorch; `sparfuse weights prepare` makes it a safetensors file";
  }
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length + 2) return "it is too short";
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length < 2 || length > kMostHeader || length > bytes.size() - sizeof length) {
    return "its header would have " + std::to_string(length) + " bytes of " +
           std::to_string(bytes.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  if (text.front() != '{') return "its header does not begin with {";
  std::string problem;
  const json header = ParseHeader(text, problem);
  if (!problem.empty()) return problem;
  const auto data = bytes.subspan(sizeof length + length);
  tensors.clear();
  for (const auto& [name, said] : header.items()) {
    if (name == "__metadata__") continue;
    problem = ReadTensor(name, said, data, tensors.emplace_back());
    if (!problem.empty()) return problem;
  }
  std::vector<std::span<const std::uint8_t>> parts;
  for (const StoredTensor& tensor : tensors) parts.push_back(tensor.bytes);
  std::ranges::sort(parts, {},
                    [](const auto& part) { return std::pair(part.data(), part.size()); });
  const std::uint8_t* at = data.data();
  for (const auto& part : parts) {
    if (part.data() != at) return "its tensors overlap, or leave bytes between them";
    at += part.size();
  }
  return at == data.data() + data.size() ? "" : "it has bytes after its tensors";
}

SafeTensors::SafeTensors(const fs::path& file) : file_(file, SizeOfFile(file)) {
  const std::string problem = ReadSafeTensors(file_.bytes(), tensors_);
  if (!problem.empty())
    SPARFUSE_THROW(kData, file.string() + ": is not a safetensors file: " + problem);
}

std::string SafeTensors::Sha256() const {
  return Sha256Of({reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()});
}

}  // namespace sparfuse::workloads
