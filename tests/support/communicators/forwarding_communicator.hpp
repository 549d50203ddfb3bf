// Defines a transport around another one, for tests that change the behaviour of one member.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/transport/communicator.hpp"

namespace sparfuse::testing {

// Has no collectives of its own. Derived classes define Split, so that they also change all groups.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  std::string_view backend() const noexcept override { return inner_->backend(); }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  const Topology& topology() const noexcept override { return inner_->topology(); }
  std::unique_ptr<Request> Isend(int to, int tag, std::span<const std::byte> data) override {
    return inner_->Isend(to, tag, data);
  }
  std::unique_ptr<Request> Irecv(int from, int tag, std::span<std::byte> buffer) override {
    return inner_->Irecv(from, tag, buffer);
  }
  void Idle(std::chrono::nanoseconds limit) override { inner_->Idle(limit); }
  void Wake() noexcept override { inner_->Wake(); }
  const TrafficByLink& traffic() const noexcept override { return inner_->traffic(); }

 protected:
  std::unique_ptr<Communicator> SplitInner(int color, int key, std::chrono::milliseconds deadline) {
    return inner_->Split(color, key, deadline);
  }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace sparfuse::testing
