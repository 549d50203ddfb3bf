#include "core/adtopk/fibre_device_kernels.hpp"
#include "core/adtopk/fibres.hpp"
#include "core/gpu/launch.hpp"
#include "core/sparsify/marked_device.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kWarpRow = 1024;    // longest contiguous fibre that one warp selects from
constexpr std::size_t kSlowRow = 32'768;  // from here on a block has all its threads
constexpr std::size_t kFewMaxima = 160;   // k up to which 256 threads give a narrow bound

bool Aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Contiguous fibres, or slices of a tile's size or less.
bool FitsTiles(const Fibres& fibres, std::size_t k) {
  if (fibres.length * fibres.inner > gpu::kTile) return false;
  if (fibres.inner > 1 || fibres.length <= gpu::kThreadFibre) return true;
  return fibres.length <= kWarpRow && k <= gpu::kMostMaxima;
}

template <bool kMarks>
void SelectContiguous(const DeviceContext& context, gpu::FibreSource<kMarks> source,
                      const Fibres& fibres) {
  const bool aligned = Aligned(source.gradient) && Aligned(source.residual);
  const auto launch = [&](std::size_t blocks, const auto& kernel) {
    gpu::Launch(context.stream, blocks, kernel, context.only_if);
  };
  if (FitsTiles(fibres, source.k)) {
    const std::size_t slice = fibres.length * fibres.inner;
    std::size_t slices = gpu::kTile / slice;
    if (slices > 4) slices -= slices % 4;  // tiles begin at aligned addresses
    source.aligned = aligned && slices * slice % 4 == 0;
    launch((fibres.outer + slices - 1) / slices,
           gpu::SelectTiles<kMarks>{source, static_cast<std::uint32_t>(fibres.inner),
                                    static_cast<std::uint32_t>(slices)});
    return;
  }
  source.aligned = aligned && fibres.length % 4 == 0;
  if (source.k <= kFewMaxima && fibres.length <= kSlowRow) {
    launch(fibres.count(), gpu::SelectRows<kMarks, 256>{source});
  } else {
    launch(fibres.count(), gpu::SelectRows<kMarks, 1024>{source});
  }
}

}  // namespace

void SelectFibresOnDevice(const DeviceContext& context, const SelectSource& source,
                          const Fibres& fibres, std::size_t k, DeviceSlot& slot) {
  const std::size_t n = source.gradient.size;
  float* const residual = source.residual.size == 0 ? nullptr : source.residual.data;
  const auto length = static_cast<std::uint32_t>(fibres.length);
  const auto inner = static_cast<std::uint32_t>(fibres.inner);
  const auto each = static_cast<std::uint32_t>(k);
  if (fibres.inner == 1 || FitsTiles(fibres, k)) {
    return SelectContiguous<false>(context,
                                   {source.gradient.data,
                                    residual,
                                    true,
                                    false,
                                    n,
                                    length,
                                    each,
                                    slot.indices,
                                    slot.values,
                                    slot.report,
                                    nullptr,
                                    {}},
                                   fibres);
  }
  // Slices that are larger than a tile: first fibre after fibre.
  auto* const turned = context.workspace->Get<float>(context.stream, kUseTransposed, n);
  const DeviceMarks marks = ClearMarks(context, n);
  gpu::Launch(context.stream, gpu::Transpose::Blocks(fibres.outer, fibres.length, fibres.inner),
              gpu::Transpose{source.gradient.data, residual, length, inner, turned, slot.report},
              context.only_if);
  SelectContiguous<true>(context,
                         {turned,
                          nullptr,
                          false,
                          false,
                          n,
                          length,
                          each,
                          nullptr,
                          nullptr,
                          nullptr,
                          marks.bitmap,
                          {length, inner}},
                         {fibres.count(), fibres.length, 1});
  TakeMarkedOnDevice(context, source, marks, Marked::kGoes, Sum::kDone, slot);
}

}  // namespace sparfuse
