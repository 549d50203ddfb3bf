// Holds what a LiveEngine is made of: layout, plan, strategy, sparsifier, collectives, device.
#pragma once

#include <chrono>
#include <memory>

#include "core/collective/collective.hpp"
#include "core/device/device.hpp"
#include "core/engine/engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/quantize/coding/payload_coding.hpp"
#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

struct LiveConfig {
  GradientLayout layout;
  Plan plan;
  Topology topology;
  std::unique_ptr<Strategy> strategy;
  bool strategy_loses = false;             // StrategyDescriptor::loses
  std::unique_ptr<Sparsifier> sparsifier;  // null when nothing is sparsified
  bool unbounded_count = false;            // of its descriptor: slots hold all elements
  Feedback feedback;                       // for all tensors but those without feedback
  // Encodes whole (unsparsified) tensors. Null: they are sent as index/value pairs.
  std::unique_ptr<Quantizer> dense_quantizer;
  // For exchanges without selections, and with; also those of other ranks.
  std::shared_ptr<const Collective> dense_collective;
  std::shared_ptr<const Collective> sparse_collective;
  // How index/value payloads are encoded; plain f32/u32 has no header.
  PayloadCoding coding;
  // Of StepScheduler: on top of what the engine's own work takes, to emulate a slower host.
  double exchange_host_seconds = 0;
  Device device;  // where gradients and averages lie
  // On a device: that of forward, backward and update. By default the engine makes one.
  Stream compute;
  std::chrono::milliseconds deadline{60000};  // of FinishStep, beyond that of any single wait
};

}  // namespace sparfuse
