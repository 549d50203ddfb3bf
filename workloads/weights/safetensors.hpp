// Reads weights: a safetensors file, mapped into memory. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/data/prepared.hpp"

namespace sparfuse::workloads {

// data_directory / weights / NAME.safetensors; a name with a slash is a file itself.
std::filesystem::path WeightsFile(const std::filesystem::path& data_directory,
                                  std::string_view name);

struct StoredTensor {
  std::string name;
  std::string type;  // "F32", "F16", "BF16" or another
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;

  std::size_t numel() const;
};

// The values as float32; F16 and BF16 are widened. Throws Error{kData} for other types, and for a
// value that is not finite.
std::vector<float> ValuesOf(const StoredTensor& tensor);

class SafeTensors {
 public:
  // Throws Error{kData} naming the file unless it is well formed: the length of the header fits,
  // the header is JSON without duplicate names, and the tensors have known types and tile the rest
  // of the file exactly. Cost: a read of the header.
  explicit SafeTensors(const std::filesystem::path& file);

  const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
  // Lower-case hexadecimal, of the whole file. Cost: reads it.
  std::string Sha256() const;

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

// The error in the content of a safetensors file, or "" and its tensors; for fuzzing.
std::string ReadSafeTensors(std::span<const std::uint8_t> bytes,
                            std::vector<StoredTensor>& tensors);

}  // namespace sparfuse::workloads
