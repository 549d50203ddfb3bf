// Lists the tensors of an exchange for collectives that look at them.
#pragma once

#include <vector>

#include "core/collective/rounds.hpp"
#include "core/fusion/layout.hpp"

namespace sparfuse {

// Those that lie in the range, whole; shapes are the layout's, which must outlive the result.
inline std::vector<ExchangedTensor> TensorsOfExchange(const GradientLayout& layout, Range range) {
  std::vector<ExchangedTensor> tensors;
  for (const std::size_t t : layout.TensorsIn(range)) {
    const TensorEntry& tensor = layout.tensor(t);
    tensors.push_back(
        {static_cast<std::uint32_t>(t), tensor.offset - range.begin, tensor.numel, tensor.shape});
  }
  return tensors;
}

}  // namespace sparfuse
