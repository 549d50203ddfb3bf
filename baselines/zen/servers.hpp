// Says which server sums which elements of a range, and in which order it holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "baselines/zen/hash_lists.hpp"

namespace sparfuse::baselines {

enum class ZenBalance : std::uint8_t {
  kHash,    // balanced parallelism: by h0 (hash_lists.hpp)
  kRanges,  // imbalanced parallelism: neighbours together, the s-th of P equal ranges
};

// The servers of one range. Positions are places in the increasing list of a server's indices.
class Servers {
 public:
  // lists: of so many servers and covering the elements; null: contiguous ranges.
  Servers(std::size_t elements, std::size_t servers, std::shared_ptr<const HashLists> lists)
      : elements_(elements), servers_(servers), lists_(std::move(lists)) {}

  std::size_t count() const { return servers_; }
  // How many elements a server has.
  std::size_t Size(std::size_t server) const {
    return lists_ != nullptr ? lists_->CountBelow(server, elements_)
                             : Begin(server + 1) - Begin(server);
  }
  // servers[i] = that of indices[i]. Precondition: the indices are below elements().
  void Find(std::span<const std::uint32_t> indices, std::span<std::uint32_t> servers) const;
  // Replaces a server's indices by their positions. Throws Error{kComm} where one is not its own.
  void ToPositions(std::size_t server, std::span<std::uint32_t> indices) const;
  std::uint32_t IndexAt(std::size_t server, std::size_t position) const {
    return lists_ != nullptr ? lists_->List(server)[position]
                             : static_cast<std::uint32_t>(Begin(server) + position);
  }

 private:
  std::size_t Begin(std::size_t server) const {  // of a contiguous range
    return static_cast<std::size_t>(std::uint64_t{elements_} * server / servers_);
  }

  std::size_t elements_;
  std::size_t servers_;
  std::shared_ptr<const HashLists> lists_;
};

}  // namespace sparfuse::baselines
