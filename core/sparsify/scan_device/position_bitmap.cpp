#include "core/device/launch.hpp"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"

namespace sparfuse {
namespace {

std::size_t ChunksOf(std::size_t n) { return (n + gpu::kBitmapChunk - 1) / gpu::kBitmapChunk; }

bool Aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

DeviceBitmap ClearDeviceBitmap(const DeviceContext& context, std::size_t n) {
  const std::size_t chunks = ChunksOf(n);
  const std::size_t words = 2 * chunks + kBitmapScratchWords + chunks * gpu::kBitmapWords;
  auto* const all = context.workspace->Get<std::uint32_t>(context.stream, kUseMarks, words);
  gpu::FillAsync(context.stream, all, 0, words * sizeof(*all));
  DeviceBitmap bitmap;
  bitmap.told = reinterpret_cast<std::uint64_t*>(all);
  bitmap.words = all + 2 * chunks;
  bitmap.bits = bitmap.words + kBitmapScratchWords;
  return bitmap;
}

void TakeBitmapOnDevice(const DeviceContext& context, const SelectSource& source,
                        const DeviceBitmap& bitmap, SetBits set_bits, Sum sum, DeviceSlot& slot) {
  const auto launch = [&]<bool kPending>() {
    gpu::Launch(
        context.stream, ChunksOf(source.gradient.size),
        gpu::TakeBitmap<kPending>{
            source.gradient.data, source.residual.size == 0 ? nullptr : source.residual.data,
            source.gradient.size, Aligned(source.gradient.data) && Aligned(source.residual.data),
            bitmap.bits, set_bits == SetBits::kSent ? 0u : ~0u, bitmap.told, slot.indices,
            slot.values, slot.report},
        context.only_if);
  };
  if (sum == Sum::kPending) {
    launch.operator()<true>();
  } else {
    launch.operator()<false>();
  }
}

}  // namespace sparfuse
