// Feeds arbitrary bytes to the reader of safetensors files. The tensors of an accepted file lie
// within it, tile it, and have the size of their shape.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "workloads/weights/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using fuzz::Require;
  std::vector<workloads::StoredTensor> tensors;
  if (!workloads::ReadSafeTensors({data, size}, tensors).empty()) return 0;
  std::size_t bytes = 0;
  for (const workloads::StoredTensor& tensor : tensors) {
    Require(tensor.bytes.data() >= data && tensor.bytes.data() + tensor.bytes.size() <= data + size,
            "a tensor lies within the file");
    bytes += tensor.bytes.size();
    if (tensor.type == "F32") Require(tensor.bytes.size() == 4 * tensor.numel(), "as its shape");
    const auto read = [&] {
      Require(workloads::ValuesOf(tensor).size() == tensor.numel(), "as many values");
    };
    fuzz::Accepts(read, FailureKind::kData);
  }
  Require(bytes <= size - 10, "tensors do not overlap");
  return 0;
}
