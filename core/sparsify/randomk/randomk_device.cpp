// Selects random positions on a device: draws them in rounds, then sends what lies there.
#include "core/device/launch.hpp"
#include "core/sparsify/randomk/randomk.hpp"
#include "core/sparsify/randomk/randomk_kernels.hpp"
#include "core/sparsify/scan_device/position_bitmap_device.hpp"

namespace sparfuse {
namespace {

constexpr double kRest = 8192;  // draws that one block does in its first round
constexpr unsigned kMaxRounds = kBitmapScratchWords;

}  // namespace

void SelectRandomOnDevice(const DeviceContext& context, const SelectSource& source,
                          const RandomStream& stream, std::size_t k, DeviceSlot& slot) {
  const std::size_t n = source.gradient.size;
  const bool drawn_are_sent = k <= n / 2;
  const std::size_t count = drawn_are_sent ? k : n - k;
  const DeviceBitmap bitmap = ClearDeviceBitmap(context, n);
  const gpu::Draws draws{stream, n, static_cast<std::uint32_t>(count), bitmap.bits, bitmap.words};
  // Rounds of the whole device, while there is work for it: a draw meets one of the positions that
  // have their bits set already with the chance that these are of all.
  unsigned round = 0;
  auto missing = static_cast<double>(count);
  for (; missing > kRest && round < kMaxRounds; ++round) {
    const auto blocks =
        static_cast<std::size_t>(missing) / (gpu::DrawRound::kThreads * gpu::DrawRound::kDraws) + 1;
    gpu::Launch(context.stream, blocks, gpu::DrawRound{draws, round}, context.only_if);
    missing *= static_cast<double>(count) / static_cast<double>(n);
  }
  if (count > 0) {
    gpu::Launch(context.stream, 1, gpu::DrawRest{draws, round}, context.only_if);
  }
  TakeBitmapOnDevice(context, source, bitmap, drawn_are_sent ? SetBits::kSent : SetBits::kKept,
                     Sum::kPending, slot);
}

}  // namespace sparfuse
