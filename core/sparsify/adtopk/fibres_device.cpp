// Selects in fibres on a device, with kernels that suit the fibres' length and layout.
#include "core/device/launch.hpp"
#include "core/sparsify/adtopk/adtopk.hpp"
#include "core/sparsify/adtopk/fibre_device_kernels.hpp"
#include "core/sparsify/scan_device/position_bitmap_device.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kWarpFibre = 1024;  // longest fibre that one warp selects from
constexpr std::size_t kFewMaxima = 320;   // largest k for which 256 threads give a narrow bound

bool Aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Tiles hold whole slices in shared memory. Contiguous fibres that keep much get a block each.
bool FitsTiles(const Fibres& fibres, std::size_t k) {
  if (fibres.length * fibres.inner > gpu::kTile || fibres.length > kWarpFibre) return false;
  return fibres.inner > 1 || fibres.length <= gpu::kThreadFibre || k <= gpu::kMostMaxima;
}

void SelectByTiles(const DeviceContext& context, gpu::FibreSource source, const Fibres& fibres) {
  const std::size_t slice = fibres.length * fibres.inner;
  std::size_t slices = gpu::kTile / slice;
  if (slices > 4) slices -= slices % 4;  // tiles begin at aligned addresses
  source.aligned &= slices * slice % 4 == 0;
  const auto launch = [&]<unsigned kPerLane>() {
    gpu::Launch(context.stream, (fibres.outer + slices - 1) / slices,
                gpu::SelectTiles<kPerLane>{source, static_cast<std::uint32_t>(fibres.inner),
                                           static_cast<std::uint32_t>(slices)},
                context.only_if);
  };
  if (fibres.length <= 128) return launch.operator()<4>();
  if (fibres.length <= 512) return launch.operator()<16>();
  launch.operator()<32>();
}

template <bool kMarks>
void SelectByRows(const DeviceContext& context, gpu::FibreSource source, std::size_t rows) {
  source.aligned &= source.length % 4 == 0;
  using Short = gpu::SelectRows<kMarks, 256>;
  if (source.k <= kFewMaxima && source.length <= Short::kSegment) {
    gpu::Launch(context.stream, rows, Short{source}, context.only_if);
  } else {
    gpu::Launch(context.stream, rows, gpu::SelectRows<kMarks, 512>{source}, context.only_if);
  }
}

void MarkByColumns(const DeviceContext& context, const gpu::FibreSource& source,
                   const Fibres& fibres, std::uint32_t* bitmap) {
  if (fibres.length <= gpu::kThreadFibre) {
    constexpr std::size_t kEach = gpu::SelectThinColumns::kThreads;
    gpu::Launch(context.stream, (fibres.count() + kEach - 1) / kEach,
                gpu::SelectThinColumns{source.gradient, source.residual, fibres.count(),
                                       source.length, static_cast<std::uint32_t>(fibres.inner),
                                       source.k, bitmap, source.report},
                context.only_if);
    return;
  }
  const auto launch = [&]<unsigned kPerLane>() {
    using Columns = gpu::SelectColumns<kPerLane>;
    gpu::Launch(context.stream, Columns::Blocks(fibres.outer, fibres.inner),
                Columns{source.gradient, source.residual, source.length,
                        static_cast<std::uint32_t>(fibres.inner), source.k, bitmap, source.report},
                context.only_if);
  };
  if (fibres.length <= 512) return launch.operator()<16>();
  launch.operator()<32>();
}

void MarkTransposed(const DeviceContext& context, gpu::FibreSource source, const Fibres& fibres,
                    std::uint32_t* bitmap) {
  auto* const turned = context.workspace->Get<float>(context.stream, kUseTransposed, source.n);
  const auto inner = static_cast<std::uint32_t>(fibres.inner);
  gpu::Launch(
      context.stream, gpu::Transpose::Blocks(fibres.outer, fibres.length, fibres.inner),
      gpu::Transpose{source.gradient, source.residual, source.length, inner, turned, source.report},
      context.only_if);
  source.gradient = turned;
  source.residual = nullptr;
  source.pending = false;
  source.aligned = true;
  source.bitmap = bitmap;
  source.origin = {source.length, inner};
  SelectByRows<true>(context, source, fibres.count());
}

}  // namespace

void SelectFibresOnDevice(const DeviceContext& context, const SelectSource& source,
                          const Fibres& fibres, std::size_t k, DeviceSlot& slot) {
  gpu::FibreSource from{};
  from.gradient = source.gradient.data;
  from.residual = source.residual.size == 0 ? nullptr : source.residual.data;
  from.pending = true;
  from.aligned = Aligned(from.gradient) && Aligned(from.residual);
  from.n = source.gradient.size;
  from.length = static_cast<std::uint32_t>(fibres.length);
  from.k = static_cast<std::uint32_t>(k);
  from.indices = slot.indices;
  from.values = slot.values;
  from.report = slot.report;
  if (FitsTiles(fibres, k)) return SelectByTiles(context, from, fibres);
  if (fibres.inner == 1) return SelectByRows<false>(context, from, fibres.count());
  const DeviceBitmap bitmap = ClearDeviceBitmap(context, from.n);
  if (fibres.length <= kWarpFibre) {
    MarkByColumns(context, from, fibres, bitmap.bits);
  } else {
    MarkTransposed(context, from, fibres, bitmap.bits);
  }
  TakeBitmapOnDevice(context, source, bitmap, SetBits::kSent, Sum::kDone, slot);
}

}  // namespace sparfuse
