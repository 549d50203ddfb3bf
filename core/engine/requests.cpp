#include "core/engine/requests.hpp"

namespace sparfuse {

std::string_view ChannelName(Channel channel) {
  static constexpr std::string_view kNames[] = {
      "control",         "data",      "intra-node",      "inter-node",
      "intra-node-back", "data-back", "inter-node-back", "background"};
  return kNames[static_cast<std::size_t>(channel)];
}

bool ExchangeRequest::sparse() const {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        return requires { kind.selections; }
        || requires { kind.given; };
      },
      pattern);
}

const Halves* ExchangeRequest::halves() const {
  return std::visit(
      []<class Kind>(const Kind& kind) -> const Halves* {
        if constexpr (requires { kind.halves->residual; })
          return kind.halves ? &*kind.halves : nullptr;
        if constexpr (requires { kind.halves.residual; }) return &kind.halves;
        return nullptr;
      },
      pattern);
}

std::span<const Handle> ExchangeRequest::selections() const {
  return std::visit(
      []<class Kind>(const Kind& kind) -> std::span<const Handle> {
        if constexpr (requires { kind.selections; }) return kind.selections;
        if constexpr (requires { kind.given; }) {
          if (const auto* selected = std::get_if<Selected>(&kind.given)) {
            return {&selected->selection, 1};
          }
        }
        return {};
      },
      pattern);
}

const SharedRange* ExchangeRequest::shared() const {
  return std::visit(
      []<class Kind>(const Kind& kind) -> const SharedRange* {
        if constexpr (requires { kind.shared; }) return &kind.shared;
        return nullptr;
      },
      pattern);
}

Handle ExchangeRequest::forwarded() const {
  return std::visit(
      []<class Kind>(const Kind& kind) -> Handle {
        if constexpr (requires { kind.given; }) {
          if (const auto* forwarded = std::get_if<Forwarded>(&kind.given))
            return forwarded->exchange;
        }
        return 0;
      },
      pattern);
}

std::size_t ExchangeRequest::array() const {
  const auto* dense = std::get_if<DenseSum>(&pattern);
  return dense == nullptr ? 0 : dense->array;
}

std::span<const Range> ExchangeRequest::shards() const {
  return std::visit(
      []<class Kind>(const Kind& kind) -> std::span<const Range> {
        if constexpr (requires { kind.shards; }) return kind.shards;
        return {};
      },
      pattern);
}

int ExchangeRequest::owner() const {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (requires { kind.owner; }) return kind.owner;
        return 0;
      },
      pattern);
}

}  // namespace sparfuse
