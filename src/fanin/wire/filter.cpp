#include "fanin/wire/filter.hpp"
#include "fanin/base/try.hpp"

#include <string>

namespace fanin::wire {
namespace {

// A message may lie in memory that its sender can still change: it is copied, then checked.
template <class Message>
Result<Message> read(std::span<const std::byte> message, FilterMessage type,
                     ErrorKind of_another_version = ErrorKind::malformed) {
  Message found;
  if (message.size() < sizeof found) return fail(ErrorKind::malformed, "too short for a message");
  std::memcpy(&found, message.data(), sizeof found);
  if (found.header.magic != filter_magic)
    return fail(ErrorKind::malformed, "no message between builder and filter units");
  if (found.header.version != filter_version) {
    return fail(of_another_version, "speaks version " + std::to_string(found.header.version) +
                                        " of the filter protocol, not " +
                                        std::to_string(filter_version) +
                                        ": run the same release of fanin on all nodes");
  }
  if (found.header.type != type) return fail(ErrorKind::malformed, "a message of another type");
  return found;
}

} // namespace

Result<FilterHello> decode_filter_hello(std::span<const std::byte> message) {
  auto hello = read<FilterHello>(message, FilterMessage::hello, ErrorKind::refused);
  if (hello && (hello->ahead == 0 || hello->ahead > filter_ahead_max))
    return fail(ErrorKind::malformed, "asks for no batch, or for too many");
  return hello;
}

Result<FilterBatch> decode_filter_batch(std::span<const std::byte> message) {
  auto batch = read<FilterBatch>(message, FilterMessage::batch);
  if (batch && (batch->from >= batch->events || batch->range().end < batch->first))
    return fail(ErrorKind::malformed, "a batch without events to decide");
  return batch;
}

bool is_filter_refusal(std::span<const std::byte> message) {
  FilterHeader header;
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  return header.magic == filter_magic && header.type == FilterMessage::refuse;
}

Result<std::string> decode_filter_refusal(std::span<const std::byte> message) {
  FilterRefuse refuse;
  if (message.size() < sizeof refuse) return fail(ErrorKind::malformed, "too short for a refusal");
  std::memcpy(&refuse, message.data(), sizeof refuse);
  const auto text = message.subspan(sizeof refuse);
  if (refuse.text_size > filter_refusal_max || refuse.text_size != text.size())
    return fail(ErrorKind::malformed, "a refusal with a text of another size");
  return std::string(reinterpret_cast<const char*>(text.data()), text.size());
}

Result<DecidedView> decode_filter_decided(std::span<const std::byte> message) {
  const auto decided = FANIN_TRY(read<FilterDecided>(message, FilterMessage::decided));
  auto rest = message.subspan(sizeof(FilterDecided));
  if (decided.count > rest.size() / sizeof(FilterDecision))
    return fail(ErrorKind::malformed, "decisions that are not all there");
  const std::size_t size = decided.count * sizeof(FilterDecision);
  DecidedView view{decided,
                   {reinterpret_cast<const FilterDecision*>(rest.data()), decided.count},
                   rest.subspan(size)};
  std::uint64_t results = 0;
  for (const FilterDecision& decision : view.decisions) {
    if (decision.result_size > filter_result_max)
      return fail(ErrorKind::malformed, "a result that is too large");
    results += decision.result_size;
  }
  if (results != view.results.size())
    return fail(ErrorKind::malformed, "results of another size than the decisions say");
  return view;
}

} // namespace fanin::wire
