// Records the work of one stream and replays it, to show that a step could be a CUDA graph.
#pragma once

#include <functional>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/runtime.hpp"
#ifdef SPARFUSE_CUDA
#include <cuda_runtime.h>
#endif

namespace sparfuse::testing {

#ifdef SPARFUSE_CUDA
namespace internal {

inline void CheckCuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  SPARFUSE_THROW(kInternal, std::string(call) + ": " + cudaGetErrorString(status));
}

inline cudaGraphExec_t Capture(const Stream& stream, const std::function<void()>& record) {
  const auto native = static_cast<cudaStream_t>(stream.native);
  CheckCuda(cudaSetDevice(stream.device.index), "cudaSetDevice");
  CheckCuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "begin capture");
  cudaGraph_t graph = nullptr;
  try {
    record();
  } catch (...) {
    cudaStreamEndCapture(native, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  CheckCuda(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t ready = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&ready, graph);
  cudaGraphDestroy(graph);
  CheckCuda(made, "cudaGraphInstantiate");
  return ready;
}

}  // namespace internal
#endif

// The work of `record` must not wait for the device, copy from memory that is not pinned, or
// allocate.
class GpuGraph {
 public:
  // Precondition: the stream is not a default stream.
  GpuGraph(const Stream& stream, const std::function<void()>& record) {
#ifdef SPARFUSE_CUDA
    if (stream.device.kind == DeviceKind::kCuda) {
      graph_ = internal::Capture(stream, record);
      return;
    }
#endif
    auto& queue = *static_cast<gpu::emulated::Queue*>(stream.native);
    queue.BeginRecording();
    try {
      record();
    } catch (...) {
      queue.EndRecording();
      throw;
    }
    recorded_ = queue.EndRecording();
  }
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
#ifdef SPARFUSE_CUDA
  ~GpuGraph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
#endif

  void Launch(const Stream& stream) const {
#ifdef SPARFUSE_CUDA
    if (graph_ != nullptr) {
      const auto native = static_cast<cudaStream_t>(stream.native);
      return internal::CheckCuda(cudaGraphLaunch(graph_, native), "cudaGraphLaunch");
    }
#endif
    for (const auto& work : recorded_) gpu::emulated::Enqueue(stream, work);
  }

 private:
#ifdef SPARFUSE_CUDA
  cudaGraphExec_t graph_ = nullptr;
#endif
  std::vector<std::function<void()>> recorded_;
};

}  // namespace sparfuse::testing
