#include "baselines/zen/servers.hpp"

#include <string>

#include "core/base/error.hpp"

namespace sparfuse::baselines {

void Servers::Find(std::span<const std::uint32_t> indices, std::span<std::uint32_t> servers) const {
  const auto count = static_cast<std::uint32_t>(servers_);
  if (lists_ != nullptr) {
    for (std::size_t i = 0; i < indices.size(); ++i) servers[i] = ServerOf(indices[i], count);
    return;
  }
  // Where indices increase, so do the servers: the range is left seldom.
  std::size_t server = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < Begin(server)) server = 0;
    while (server + 1 < servers_ && indices[i] >= Begin(server + 1)) ++server;
    servers[i] = static_cast<std::uint32_t>(server);
  }
}

void Servers::ToPositions(std::size_t server, std::span<std::uint32_t> indices) const {
  const std::size_t begin = lists_ == nullptr ? Begin(server) : 0;
  const std::size_t end = lists_ == nullptr ? Begin(server + 1) : elements_;
  for (std::uint32_t& index : indices) {
    bool own = index >= begin && index < end;
    std::size_t position = index - begin;
    if (own && lists_ != nullptr) {
      own = ServerOf(index, static_cast<std::uint32_t>(servers_)) == server;
      if (own) position = lists_->CountBelow(server, index);
    }
    if (!own) {
      SPARFUSE_THROW(kComm, "zen: server " + std::to_string(server) + " got index " +
                                std::to_string(index) + " of a range of " +
                                std::to_string(elements_) + " elements, which is not its own");
    }
    index = static_cast<std::uint32_t>(position);
  }
}

}  // namespace sparfuse::baselines
