// Sets where and how LibTorch computes: devices, streams, precision and the choice of kernels.
#pragma once

#include <optional>

#include "core/device/device.hpp"
#include "workloads/torch/pch.hpp"
#include "workloads/workload.hpp"
#ifdef SPARFUSE_CUDA
#include <c10/cuda/CUDAGuard.h>
#endif

namespace sparfuse::workloads {

// LibTorch's name of the device. Throws Error{kUnsupported} saying why if this process cannot
// use it, or if it lacks the precision; Error{kConfig} for TF32 on the host.
at::Device PlaceOf(const Stream& stream, Precision precision);

// Settings of this process, for every workload in it; on the host they are LibTorch's defaults.
// LibTorch prints each warning once on the calling thread.
//
// On CUDA fp32 means IEEE products: cuDNN would otherwise use TF32. `deterministic` takes kernels
// without atomic additions for convolutions, attention and other operations with several kernels.
// Otherwise cuDNN tries its convolutions on each new shape and keeps the fastest, which may differ
// from run to run.
void SetNumerics(at::DeviceType device, Precision precision, bool deterministic);

// A copy on the device, or the same tensor if it is there already. From host memory it goes through
// pinned memory, so that the host does not wait for the stream's earlier work.
at::Tensor CopyTo(at::Device device, const at::Tensor& tensor);

// While it lives, `stream` is LibTorch's current one on this thread, and its device the current
// one. On the host it does nothing.
class CurrentStream {
 public:
  explicit CurrentStream([[maybe_unused]] const Stream& stream) {
#ifdef SPARFUSE_CUDA
    if (stream.device.kind != DeviceKind::kCuda) return;
    const auto index = static_cast<c10::DeviceIndex>(stream.device.index);
    guard_.emplace(stream.native == nullptr ? c10::cuda::getDefaultCUDAStream(index)
                                            : c10::cuda::getStreamFromExternal(
                                                  static_cast<cudaStream_t>(stream.native), index));
#endif
  }

#ifdef SPARFUSE_CUDA
 private:
  std::optional<c10::cuda::CUDAStreamGuard> guard_;
#endif
};

// While it lives, this thread's operations on the device are computed in bfloat16 if autocast does
// that. Backward passes run without it, with the types of the forward pass.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool enabled_;
  bool was_enabled_ = false;
  at::ScalarType was_type_ = at::kBFloat16;
};

}  // namespace sparfuse::workloads
