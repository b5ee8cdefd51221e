// Cuts what is assigned into messages, sends it, and keeps it until it is cleared.
#include "fanin/builder/readout_unit.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr Duration reconnect_after = std::chrono::milliseconds{20};
constexpr Duration retry_after = std::chrono::milliseconds{500}; // when there is no descriptor
} // namespace

MetadataLayout ReadoutUnit::layout() const {
  MetadataLayout layout{.page = options_.metadata_pool->page_size(),
                        .batch_events = system_.batch_events,
                        .data_page = system_.data_page,
                        .builders = builders_.size(),
                        .sources = inputs_.size(),
                        .source_page = inputs_.front()->pool->page_size()};
  for (const auto& input : inputs_) {
    layout.payload += std::uint64_t{input->pool->pages()} * input->pool->page_size();
    layout.source_page = std::min(layout.source_page, input->pool->page_size());
  }
  return layout;
}

// There are enough pages: whoever prepares a batch has looked.
std::byte* ReadoutUnit::reserve_metadata(Builder& builder, std::uint32_t size) {
  if (!builder.metadata || metadata_.page - builder.metadata_filled < size) {
    builder.metadata = options_.metadata_pool->take();
    builder.metadata_filled = 0;
    FANIN_ASSERT(builder.metadata);
  }
  return builder.metadata.data() + builder.metadata_filled;
}

// Whether all sources have said what they have of these events. Those at their end have no more.
bool ReadoutUnit::answered(EventRange range) {
  return std::ranges::all_of(inputs_, [range](const auto& input) {
    const bool all = input->queue.numbered() && input->queue.next_event() >= range.end;
    return all || input->queue.give_up_until(range.end, wire::AbsentReason::none);
  });
}

// At most so many bytes of metadata.
std::uint64_t ReadoutUnit::heads_of(EventRange range) const {
  std::uint64_t bytes = 0;
  for (const auto& input : inputs_) {
    const std::uint64_t payload =
        input->queue.position(range.end) - input->queue.position(range.first);
    bytes += metadata_per_source(range.count()) + metadata_.further_pieces(payload);
  }
  return bytes;
}

void ReadoutUnit::prepare(Batch& batch) {
  for (auto& input : inputs_) prepare_input(batch, *input);
}

// Cuts the batch's events of one source into messages.
void ReadoutUnit::prepare_input(Batch& batch, Input& input) {
  const source::FragmentQueue& queue = input.queue;
  Builder& builder = builders_[batch.builder];
  wire::PartHeader header;
  header.run = run_;
  header.batch_first = batch.range.first;
  header.batch_events = static_cast<std::uint32_t>(batch.range.count());
  header.source = queue.options().source;
  header.readout_unit = options_.node;
  header.attempt = batch.attempt;
  header.readout_incarnation = incarnation_;
  header.builder_incarnation = batch.builder_incarnation;
  const std::uint32_t message_max = system_.data_page / 2;

  for (source::Cursor cursor{batch.range.first, 0}; cursor.event < batch.range.end;) {
    const auto entries_max = static_cast<std::uint32_t>(batch.range.end - cursor.event);
    const std::uint32_t head_max =
        static_cast<std::uint32_t>(sizeof header + entries_max * sizeof(wire::FragmentEntry));
    std::byte* head = reserve_metadata(builder, head_max);
    auto* table = reinterpret_cast<wire::FragmentEntry*>(head + sizeof header);
    const source::Piece piece =
        queue.cut(cursor, batch.range.end, message_max - head_max, entries_max, table);
    header.first_event = piece.range.first;
    header.entries = static_cast<std::uint32_t>(piece.range.count());
    header.payload_size = piece.payload.size;
    header.payload_offset = piece.payload_offset;
    std::memcpy(head, &header, sizeof header);
    const auto head_size =
        static_cast<std::uint32_t>(sizeof header + header.entries * sizeof(wire::FragmentEntry));
    wire::seal_part({head, head_size}, system_.checksum);
    batch.pieces.push_back(
        {builder.metadata.freeze(builder.metadata_filled, head_size), piece.payload});
    builder.metadata_filled += head_size;
  }
}

// The same pieces for another builder unit: new headers, since the old ones may still be on their
// way. False: there are no pages for them now.
bool ReadoutUnit::readdress(Batch& batch, const wire::Assign& assign) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : batch.pieces) bytes += piece.head.size;
  if (options_.metadata_pool->available() < metadata_.pages(bytes)) return false;
  Builder& builder = builders_[assign.builder];
  for (Piece& piece : batch.pieces) {
    std::byte* head = reserve_metadata(builder, piece.head.size);
    std::memcpy(head, piece.head.data(), piece.head.size);
    wire::PartHeader header;
    std::memcpy(&header, head, sizeof header);
    header.attempt = assign.attempt;
    header.builder_incarnation = assign.builder_incarnation;
    std::memcpy(head, &header, sizeof header);
    wire::seal_part({head, piece.head.size}, system_.checksum);
    piece.head = builder.metadata.freeze(builder.metadata_filled, piece.head.size);
    builder.metadata_filled += piece.head.size;
  }
  batch.attempt = assign.attempt;
  batch.builder = assign.builder;
  batch.builder_incarnation = assign.builder_incarnation;
  return true;
}

void ReadoutUnit::mark_cut(EventRange range) {
  if (range.end <= cut_until_) return;
  auto [entry, inserted] = cut_.try_emplace(range.first, range.end);
  if (!inserted) entry->second = std::max(entry->second, range.end);
  while (!cut_.empty() && cut_.begin()->first <= cut_until_) {
    cut_until_ = std::max(cut_until_, cut_.begin()->second);
    cut_.erase(cut_.begin());
  }
  for (auto& input : inputs_) input->queue.release_until(cut_until_);
  retry_full_ = true;
}

void ReadoutUnit::enqueue(Batch& batch) {
  batch.next_piece = 0;
  Builder& builder = builders_[batch.builder];
  if (builder.incarnation != batch.builder_incarnation) return; // died meanwhile: reassigned soon
  builder.queue.push_back(batch.range.first);
  pump(builder);
}

void ReadoutUnit::connect(Builder& builder) {
  ++builder.connection;
  const net::Url& url = builder.rails[builder.rail];
  const auto transport = environment_.transports->find(url);
  if (!transport) {
    environment_.log(LogLevel::error, transport.error().text);
    change_rail(builder);
    builder.reconnect->start(*environment_.loop, environment_.loop->now() + retry_after);
    return;
  }
  const auto open = [&](bool control) -> net::Link {
    const auto id = (*transport)
                        ->connect(url, {.receive_pool = environment_.control_pool,
                                        .handler = this,
                                        .low_latency = control});
    if (id) return {*transport, *id};
    environment_.log(LogLevel::error, id.error().text);
    return {};
  };
  builder.data = open(false);
  if (system_.protocol == Protocol::pull) builder.request = open(true);
  if (!builder.data || (system_.protocol == Protocol::pull && !builder.request)) {
    change_rail(builder);
    builder.reconnect->start(*environment_.loop, environment_.loop->now() + retry_after);
  }
}

void ReadoutUnit::disconnect(Builder& builder) {
  builder.data.close(true);
  builder.request.close(true);
  builder.incarnation = 0;
  builder.data_ready = builder.request_ready = false;
  builder.queue.clear();
  builder.metadata.reset();
  builder.reconnect->cancel();
}

void ReadoutUnit::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  for (auto& builder : builders_) {
    if (builder.data == link || builder.request == link) return on_data_event(builder, event);
  }
}

// Says hello; the data follow it. Again when the network is writable if it does not take that now.
void ReadoutUnit::introduce(Builder& builder, bool is_data) {
  wire::Hello hello;
  hello.role = is_data ? wire::Role::data : wire::Role::request;
  hello.node = options_.node;
  hello.system_digest = digest_;
  hello.run = run_;
  hello.incarnation = incarnation_;
  hello.peer_incarnation = builder.incarnation;
  hello.connection = builder.connection;
  Gather first{is_data ? builder.data : builder.request, *environment_.control_pool};
  first.append(hello);
  first.flush();
  if (first.failed() && !builder.reconnect->active()) // no page for it
    builder.reconnect->start(*environment_.loop, environment_.loop->now() + reconnect_after);
  bool& ready = is_data ? builder.data_ready : builder.request_ready;
  ready = first.sent() && !first.failed();
  if (!is_data || !ready) return;
  builder.queue.clear(); // again from the start: what was on its way may be lost
  for (auto& [number, batch] : batches_) {
    if (&builders_[batch.builder] != &builder || batch.builder_incarnation != builder.incarnation) {
      continue;
    }
    batch.next_piece = 0;
    builder.queue.push_back(number);
  }
  pump(builder);
}

void ReadoutUnit::on_data_event(Builder& builder, net::Event& event) {
  const bool is_data = builder.data.id == event.connection;
  net::Link& link = is_data ? builder.data : builder.request;
  switch (event.kind) {
  case net::EventKind::connected: introduce(builder, is_data); break;
  case net::EventKind::message: {
    const bool good =
        !is_data &&
        for_each_message(
            event.message.bytes(), [this](wire::MessageType type, std::span<const std::byte> body) {
              wire::MessageReader reader{body};
              wire::Assign assign;
              return type == wire::MessageType::assign && reader.read(assign) && on_assign(assign);
            });
    if (!good) {
      environment_.log(LogLevel::error,
                       fmt::format("{}: a request that makes no sense", link.peer()));
      link.close(true);
    }
    break;
  }
  case net::EventKind::writable:
    if (is_data ? builder.data_ready : builder.request_ready) {
      pump(builder);
    } else {
      introduce(builder, is_data);
    }
    break;
  case net::EventKind::closed:
    if (!(is_data ? builder.data_ready : builder.request_ready) &&
        !std::exchange(builder.unreachable_said, true)) {
      environment_.log(
          LogLevel::warning,
          fmt::format("cannot reach builder unit '{}' at {}: {}; trying again",
                      system_.builder_units[static_cast<std::size_t>(&builder - builders_.data())],
                      builder.rails[builder.rail].text(), name(event.reason)));
    }
    link = {};
    (is_data ? builder.data_ready : builder.request_ready) = false;
    if (builder.incarnation != 0 && !builder.reconnect->active()) {
      change_rail(builder);
      builder.reconnect->start(*environment_.loop, environment_.loop->now() + reconnect_after);
    }
    break;
  case net::EventKind::accepted: break;
  }
}

void ReadoutUnit::change_rail(Builder& builder) {
  if (builder.rails.size() == 1) return;
  const std::size_t lost = std::exchange(builder.rail, (builder.rail + 1) % builder.rails.size());
  environment_.log(LogLevel::warning,
                   fmt::format("{} is closed, trying {} next", builder.rails[lost].text(),
                               builder.rails[builder.rail].text()));
}

// Sends what is assigned to a builder unit, oldest first, until its link takes no more.
void ReadoutUnit::pump(Builder& builder) {
  while (builder.data_ready && !builder.queue.empty()) {
    const auto found = batches_.find(builder.queue.front());
    if (found == batches_.end() || &builders_[found->second.builder] != &builder) {
      builder.queue.pop_front(); // cleared, or assigned to another meanwhile
      continue;
    }
    Batch& batch = found->second;
    while (batch.next_piece < batch.pieces.size()) {
      const Piece& piece = batch.pieces[batch.next_piece];
      const std::array<memory::View, 2> extents{piece.head, piece.payload};
      const auto outcome =
          builder.data.send(std::span{extents}.first(piece.payload.size == 0 ? 1 : 2));
      if (outcome == net::SendOutcome::backpressure) return; // `writable` follows
      if (outcome == net::SendOutcome::closed) return; // `closed` follows
      if (outcome == net::SendOutcome::too_large) {
        environment_.log(LogLevel::error,
                         fmt::format("{}: takes smaller messages than a builder unit of this "
                                     "configuration; connection closed",
                                     builder.data.peer()));
        builder.data.close(true);
        builder.data_ready = false;
        builder.reconnect->start(*environment_.loop, environment_.loop->now() + retry_after);
        return;
      }
      counters_.bytes += piece.payload.size;
      ++counters_.messages;
      ++batch.next_piece;
    }
    builder.queue.pop_front();
  }
}

} // namespace fanin::builder
