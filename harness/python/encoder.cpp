#include "harness/python/encoder.hpp"

#include "harness/python/selector.hpp"
#include "harness/python/threads.hpp"

namespace sparfuse::python {

ArrayMemory<std::uint8_t> Encoder::Encode(const std::string& name,
                                          std::span<const std::int64_t> shape,
                                          std::span<const float> gradient,
                                          std::span<float> residual,
                                          std::optional<std::uint64_t> step) {
  const std::size_t n = gradient.size();
  Tensor& tensor =
      tensors_.try_emplace(name, Tensor{{shape.begin(), shape.end()}, 0}).first->second;
  RequireShape(name, tensor.shape, shape);
  ArrayMemory<std::uint8_t> payload(configured_->quantizer->EncodedBytes(n));
  const std::shared_ptr<ThreadPool> pool = ModulePool();
  const std::uint64_t at = step.value_or(tensor.next_step);
  configured_->quantizer->Encode({pool.get(), &workspace_, configured_->rank},
                                 {{gradient.data(), n, {}}, {residual.data(), residual.size(), {}}},
                                 {TensorId(name), name, shape, at},
                                 std::as_writable_bytes(payload.span()));
  tensor.next_step = at + 1;
  return payload;
}

std::uint64_t Encoder::StepOf(const std::string& tensor, std::optional<std::uint64_t> step) const {
  if (step) return *step;
  const auto known = tensors_.find(tensor);
  return known == tensors_.end() ? 0 : known->second.next_step;
}

}  // namespace sparfuse::python
