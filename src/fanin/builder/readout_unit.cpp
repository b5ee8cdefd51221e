#include "fanin/builder/readout_unit.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr Duration status_period = std::chrono::milliseconds{250};
constexpr Duration reconnect_after = std::chrono::milliseconds{20};
constexpr std::uint64_t announce_bytes = 128U << 10; // worth a message of its own
} // namespace

struct ReadoutUnit::Input {
  Input(ReadoutInput&& input)
      : source(std::move(input.source)), pool(input.pool), queue(input.queue, *input.pool) {}
  std::unique_ptr<source::Source> source;
  memory::PagePool* pool;
  source::FragmentQueue queue;
  source::ReadResult last;
  Time behind_since = never; // silent while others went on
  EventNumber behind_until = 0;
  [[nodiscard]] bool done() const {
    return last.state == source::ReadState::finished || last.state == source::ReadState::failed;
  }
};

class ReadoutUnit::Readable final : public net::Service {
public:
  Readable(net::Loop& loop, const source::Source& source) : loop_(loop), source_(source) {
    loop_.add(*this);
  }
  ~Readable() override { loop_.remove(*this); }
  bool poll() override { return false; } // being woken is enough: the readout unit reads each turn
  [[nodiscard]] int descriptor() const override { return source_.descriptor(); }

private:
  net::Loop& loop_;
  const source::Source& source_;
};

ReadoutUnit::ReadoutUnit(const System& system, ReadoutOptions options, NodeEnvironment environment)
    : system_(system), digest_(system.digest()), options_(std::move(options)), environment_(std::move(environment)),
      builders_(system.builder_units.size()), tick_([] {}), status_tick_([this] {
        send_status(false);
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }) {
  const auto [first, last] = system_.sources_of(options_.node);
  FANIN_ASSERT(options_.inputs.size() == last - first);
  for (auto& input : options_.inputs) {
    inputs_.push_back(std::make_unique<Input>(std::move(input)));
    source_counters_.push_back({.source = inputs_.back()->queue.options().source});
    if (inputs_.back()->source->descriptor() >= 0) {
      readables_.push_back(std::make_unique<Readable>(*environment_.loop, *inputs_.back()->source));
    }
  }
  wire::Hello hello;
  hello.role = wire::Role::readout_unit;
  hello.node = options_.node;
  hello.system_digest = digest_;
  for (const auto& input : inputs_) {
    hello.capacity += std::uint64_t{input->pool->pages()} * input->pool->page_size();
  }
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.readout_units[options_.node] + "\n",
          .give_up_after = options_.give_up_after,
          .on_message = [this](wire::MessageType type,
                               std::span<const std::byte> body) { return on_control(type, body); },
          .on_lost = [this] { on_lost(); },
          .on_given_up = [this](const Error& error) { end(std::unexpected(error)); }});
  for (auto& builder : builders_) {
    builder.reconnect = std::make_unique<net::Timer>([this, &builder] {
      builder.data.close(true);
      builder.request.close(true);
      builder.data_ready = false;
      connect(builder);
    });
  }
  environment_.loop->add(*this);
}

ReadoutUnit::~ReadoutUnit() {
  environment_.loop->remove(*this);
  for (auto& builder : builders_) disconnect(builder);
}

void ReadoutUnit::start() { control_->start(); }

void ReadoutUnit::end(Result<> result) {
  if (ended_) return;
  ended_ = true;
  reset();
  control_->stop();
  status_tick_.cancel();
  options_.on_end(result);
}

void ReadoutUnit::reset() {
  incarnation_ = 0;
  numbered_ = last_ = final_ = paused_ = false;
  horizon_ = announced_ = cut_until_ = limit_ = 0;
  announce_due_ = throttled_since_ = never;
  batches_.clear();
  cut_.clear();
  waiting_.clear();
  for (auto& builder : builders_) disconnect(builder);
  for (auto& input : inputs_) input->queue.start_unnumbered();
  metadata_.reset();
}

void ReadoutUnit::on_lost() {
  // What it held is lost to the run; it comes back as a new incarnation.
  reset();
}

// --- control -------------------------------------------------------------------------------------

bool ReadoutUnit::on_control(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::welcome: {
    wire::Welcome welcome;
    return reader.read(welcome) && on_welcome(welcome);
  }
  case wire::MessageType::builder_up: {
    wire::BuilderUp up;
    if (!reader.read(up)) return false;
    const auto url = reader.text(up.text_size);
    return reader.ok() && on_builder_up(up, url);
  }
  case wire::MessageType::builder_down: {
    wire::BuilderDown down;
    if (!reader.read(down) || down.node >= builders_.size()) return false;
    if (builders_[down.node].incarnation == down.incarnation) disconnect(builders_[down.node]);
    return true;
  }
  case wire::MessageType::limit: {
    wire::Limit limit;
    if (!reader.read(limit)) return false;
    limit_ = limit.event;
    last_ = limit.last != 0;
    paused_ = false;
    if (last_) horizon_ = limit_; // all of them exist: somebody has announced the last
    for (auto& input : inputs_) input->queue.set_limit(limit_);
    retry_full_ = true;
    return true;
  }
  case wire::MessageType::horizon: {
    wire::Horizon horizon;
    if (!reader.read(horizon)) return false;
    horizon_ = std::max(horizon_, horizon.event);
    return true;
  }
  case wire::MessageType::pause: {
    paused_ = true;
    EventNumber furthest = 0;
    for (auto& input : inputs_) {
      if (input->queue.numbered()) furthest = std::max(furthest, input->queue.next_event());
    }
    for (auto& input : inputs_) input->queue.set_limit(furthest);
    control_->send(wire::Paused{furthest});
    return true;
  }
  case wire::MessageType::assign: {
    wire::Assign assign;
    return reader.read(assign) && on_assign(assign);
  }
  case wire::MessageType::clear: {
    wire::Clear clear;
    if (!reader.read(clear)) return false;
    on_clear(clear);
    return true;
  }
  case wire::MessageType::finish:
    send_status(true);
    control_->flush();
    end({});
    return true;
  default: return false;
  }
}

bool ReadoutUnit::on_welcome(const wire::Welcome& welcome) {
  reset();
  run_ = welcome.run;
  incarnation_ = welcome.incarnation;
  limit_ = welcome.limit;
  const Time now = environment_.loop->now();
  for (auto& input : inputs_) {
    if (welcome.joining != 0) input->queue.start(welcome.first_event);
    input->queue.set_limit(limit_);
    input->behind_since = never;
    input->last = {};
    input->last.wake = now;
    if (const auto started = input->source->start(welcome.first_event, now); !started) {
      environment_.log(LogLevel::error, fmt::format("source {}: {}", input->queue.options().source,
                                                    started.error().text));
      input->last = {source::ReadState::failed, never, started.error()};
    }
  }
  if (welcome.joining != 0) {
    numbered_ = true;
    announced_ = joined_ = cut_until_ = horizon_ = welcome.first_event;
    announce_range({announced_, announced_}, false);
  }
  status_tick_.start(*environment_.loop, now + status_period);
  return true;
}

bool ReadoutUnit::on_builder_up(const wire::BuilderUp& up, std::string_view url) {
  const auto parsed = net::Url::parse(url);
  if (up.node >= builders_.size() || !parsed) return false;
  Builder& builder = builders_[up.node];
  disconnect(builder);
  builder.incarnation = up.incarnation;
  builder.url = *parsed;
  connect(builder);
  return true;
}

bool ReadoutUnit::on_assign(const wire::Assign& assign) {
  if (!numbered_ || assign.builder >= builders_.size() || assign.events == 0 ||
      assign.events > system_.batch_events || assign.range().end < assign.first) {
    return false;
  }
  if (!waiting_.empty() || !try_assign(assign)) waiting_.push_back(assign);
  return true;
}

void ReadoutUnit::retry_waiting() {
  while (!waiting_.empty() && try_assign(waiting_.front())) waiting_.pop_front();
}

// False: there are no metadata pages for it now.
bool ReadoutUnit::try_assign(const wire::Assign& assign) {
  const EventRange range = assign.range();
  auto known = batches_.find(range.first);
  if (known != batches_.end()) {
    Batch& batch = known->second;
    if (batch.range != range || assign.attempt <= batch.attempt) {
      ++counters_.stale;
      return true;
    }
    if (!readdress(batch, assign)) return false;
    enqueue(batch);
    return true;
  }
  const auto later = cut_.upper_bound(range.first);
  const bool was_cut = range.first < cut_until_ ||
                       (later != cut_.begin() && std::prev(later)->second > range.first);
  if (was_cut && range.first >= joined_) {
    ++counters_.stale;
    return true;
  }
  Batch& batch = batches_[range.first];
  batch.range = range;
  batch.attempt = assign.attempt;
  batch.builder = assign.builder;
  batch.builder_incarnation = assign.builder_incarnation;
  if (!spare_pieces_.empty()) {
    batch.pieces = std::move(spare_pieces_.back());
    spare_pieces_.pop_back();
  }
  if (!prepare(batch)) {
    batch.pieces.clear();
    spare_pieces_.push_back(std::move(batch.pieces));
    batches_.erase(range.first);
    return false;
  }
  mark_cut(range);
  enqueue(batch);
  return true;
}

void ReadoutUnit::on_clear(const wire::Clear& clear) {
  const auto found = batches_.find(clear.first);
  if (found != batches_.end()) {
    auto pieces = std::move(found->second.pieces);
    pieces.clear();
    spare_pieces_.push_back(std::move(pieces));
    batches_.erase(found);
  } else if (numbered_) {
    mark_cut(clear.range()); // decided without this node's answer
  }
  retry_full_ = true;
  retry_waiting();
}

void ReadoutUnit::send_status(bool last) {
  if (incarnation_ == 0) return;
  counters_.pages = counters_.pages_in_use = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = *inputs_[i];
    counters_.pages += input.pool->pages();
    counters_.pages_in_use += input.pool->pages() - input.pool->available();
    for (std::size_t reason = 0; reason < source::drop_reasons; ++reason) {
      source_counters_[i].dropped[reason] =
          input.queue.dropped(static_cast<source::DropReason>(reason));
    }
  }
  counters_.sources = static_cast<std::uint32_t>(source_counters_.size());
  if (last) {
    control_->send(wire::Finished{counters_}, source_counters_);
  } else {
    control_->send(wire::Status{counters_}, source_counters_);
  }
}

const wire::NodeCounters& ReadoutUnit::counters() { return counters_; }

std::uint64_t ReadoutUnit::fragments_read() const {
  std::uint64_t sum = 0;
  for (const auto& input : inputs_) sum += input->queue.written();
  return sum;
}

// --- reading -------------------------------------------------------------------------------------

bool ReadoutUnit::poll() {
  if (incarnation_ != 0) {
    const bool more = read_inputs();
    watch_silence();
    announce(!more);
    arm_tick(environment_.loop->now());
    control_->flush();
    return more;
  }
  control_->flush();
  return false;
}

// True if a source has more to give at once.
bool ReadoutUnit::read_inputs() {
  const Time now = environment_.loop->now();
  const bool retry = std::exchange(retry_full_, false);
  bool more = false;
  bool throttled = false;
  for (auto& input : inputs_) {
    if (input->done()) continue;
    const bool due = retry || input->last.state == source::ReadState::more ||
                     now >= input->last.wake || input->source->descriptor() >= 0;
    if (due) {
      input->last = input->source->read(input->queue, now);
      if (input->last.state == source::ReadState::failed) {
        environment_.log(LogLevel::error, fmt::format("source {} cannot go on: {}",
                                                      input->queue.options().source,
                                                      input->last.error.text));
      }
    }
    more = more || input->last.state == source::ReadState::more;
    throttled = throttled || input->queue.throttled();
  }
  if (throttled && throttled_since_ == never) throttled_since_ = now;
  if (!throttled && throttled_since_ != never) {
    counters_.throttled_us += static_cast<std::uint64_t>((now - throttled_since_).count()) / 1000;
    throttled_since_ = never;
  }
  return more;
}

// A source that stays silent while others have gone on is given up after the deadline. The time in
// which it is held back by us does not count.
void ReadoutUnit::watch_silence() {
  const Time now = environment_.loop->now();
  for (const auto& input : inputs_) {
    if (input->queue.numbered()) horizon_ = std::max(horizon_, input->queue.next_event());
  }
  if (horizon_ > limit_) horizon_ = limit_;
  for (auto& input : inputs_) {
    source::FragmentQueue& queue = input->queue;
    const bool behind = horizon_ > 0 && (!queue.numbered() || queue.next_event() < horizon_);
    if (input->done()) {
      if (behind) retry_full_ = !queue.give_up_until(horizon_) || retry_full_;
    } else if (!behind || queue.throttled()) {
      input->behind_since = never;
    } else if (input->behind_since == never ||
               (queue.numbered() && queue.next_event() >= input->behind_until)) {
      input->behind_since = now;
      input->behind_until = horizon_;
    } else if (now - input->behind_since >= system_.event_deadline) {
      environment_.log(LogLevel::warning,
                       fmt::format("source {} is silent: given up until event {}",
                                   queue.options().source, input->behind_until));
      (void)queue.give_up_until(input->behind_until);
      input->behind_since = never;
    }
  }
}

void ReadoutUnit::announce(bool idle) {
  EventNumber low = ~EventNumber{0};
  bool all_done = true;
  for (const auto& input : inputs_) {
    if (!input->queue.numbered()) {
      // A run without any event at all still has to end.
      if (!last_ && !input->done()) return;
      if (limit_ == 0 || horizon_ == 0) continue;
      return;
    }
    low = std::min(low, input->queue.next_event());
    all_done = all_done && input->done();
  }
  if (low == ~EventNumber{0}) low = announced_;
  low = std::min(low, std::max(limit_, announced_)); // what was read beyond the end is not announced
  if (!numbered_) {
    EventNumber first = ~EventNumber{0};
    for (const auto& input : inputs_) {
      if (input->queue.numbered()) first = std::min(first, input->queue.first_event());
    }
    if (first == ~EventNumber{0}) first = low = 0;
    numbered_ = true;
    announced_ = cut_until_ = joined_ = first;
    announce_range({first, first}, false);
  }
  const Time now = environment_.loop->now();
  const bool final = !final_ && !paused_ && ((last_ && low >= limit_) || (all_done && low >= horizon_));
  if (low <= announced_ && !final) {
    announce_due_ = never;
    return;
  }
  std::uint64_t bytes = 0;
  for (const auto& input : inputs_) {
    bytes += input->queue.position(low) - input->queue.position(announced_);
  }
  if (announce_due_ == never) announce_due_ = now + system_.announce_deadline;
  EventNumber end = low;
  if (!idle && !final && bytes < announce_bytes && now < announce_due_) {
    end = low & ~static_cast<EventNumber>(system_.batch_events - 1); // whole batches only
  }
  if (end <= announced_ && !final) return;
  announce_due_ = never;
  while (announced_ < end) {
    const EventNumber boundary = (announced_ | (system_.batch_events - 1)) + 1;
    announce_range({announced_, std::min(end, boundary)}, false);
  }
  if (final) {
    announce_range({announced_, announced_}, true);
    final_ = true;
  }
}

// Announces a range within one batch, in pieces if too many fragments are absent for one message.
void ReadoutUnit::announce_range(EventRange range, bool final) {
  bool complete = true;
  for (const auto& input : inputs_) {
    complete = complete && !input->queue.may_be_absent_from(range.first);
  }
  const std::size_t records = control_->room_max() / sizeof(wire::AbsentRun);
  const EventNumber step =
      complete ? range.count() : std::max<std::size_t>(1, records / inputs_.size());
  std::vector<wire::AbsentRun> absent;
  do {
    const EventRange part{range.first, std::min(range.end, range.first + step)};
    wire::Announce message{.first = part.first, .end = part.end, .final = final ? 1U : 0U};
    absent.clear();
    for (const auto& input : inputs_) {
      const source::FragmentQueue& queue = input->queue;
      if (part.empty()) break;
      message.bytes += queue.position(part.end) - queue.position(part.first);
      if (!queue.may_be_absent_from(part.first)) continue;
      for (EventNumber event = part.first; event < part.end; ++event) {
        if (!queue.entry(event).absent()) continue;
        const EventNumber first = event;
        while (event + 1 < part.end && queue.entry(event + 1).absent()) ++event;
        absent.push_back({queue.options().source, static_cast<std::uint32_t>(event + 1 - first), first});
      }
    }
    message.absent_runs = static_cast<std::uint32_t>(absent.size());
    control_->send(message, absent);
    range.first = part.end;
  } while (!range.empty());
  announced_ = range.end;
}

void ReadoutUnit::arm_tick(Time now) {
  Time due = announce_due_;
  for (const auto& input : inputs_) {
    if (input->done()) continue;
    if (input->last.state == source::ReadState::waiting) due = std::min(due, input->last.wake);
    if (input->behind_since != never) due = std::min(due, input->behind_since + system_.event_deadline);
  }
  if (due == never) {
    tick_.cancel();
  } else if (!tick_.active() || tick_.deadline() != due) {
    tick_.start(*environment_.loop, std::max(due, now));
  }
}

// --- sending -------------------------------------------------------------------------------------

std::byte* ReadoutUnit::reserve_metadata(std::uint32_t size) {
  const std::uint32_t page_size = options_.metadata_pool->page_size();
  FANIN_ASSERT(size <= page_size);
  if (!metadata_ || page_size - metadata_filled_ < size) {
    metadata_ = options_.metadata_pool->take();
    metadata_filled_ = 0;
    if (!metadata_) return nullptr;
  }
  return metadata_.data() + metadata_filled_;
}

bool ReadoutUnit::prepare(Batch& batch) {
  for (auto& input : inputs_) {
    if (!prepare_input(batch, *input)) return false;
  }
  return true;
}

// Cuts the batch's events of one source into messages.
bool ReadoutUnit::prepare_input(Batch& batch, Input& input) {
  source::FragmentQueue& queue = input.queue;
  if (!queue.numbered() || queue.next_event() < batch.range.end) {
    (void)queue.give_up_until(batch.range.end); // at its end: it has nothing more
    if (queue.next_event() < batch.range.end) return false;
  }
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
    std::byte* head = reserve_metadata(head_max);
    if (head == nullptr) return false;
    auto* table = reinterpret_cast<wire::FragmentEntry*>(head + sizeof header);
    const source::Piece piece =
        queue.cut(cursor, batch.range.end, message_max - head_max, entries_max, table);
    header.first_event = piece.range.first;
    header.entries = static_cast<std::uint32_t>(piece.range.count());
    header.payload_size = piece.payload.size;
    header.payload_offset = piece.payload_offset;
    std::memcpy(head, &header, sizeof header);
    const auto head_size = static_cast<std::uint32_t>(
        sizeof header + header.entries * sizeof(wire::FragmentEntry));
    wire::seal_part({head, head_size}, system_.checksum);
    batch.pieces.push_back({metadata_.freeze(metadata_filled_, head_size), piece.payload});
    metadata_filled_ += head_size;
  }
  return true;
}

// The same pieces for another builder unit: new headers, since the old ones may still be on their way.
bool ReadoutUnit::readdress(Batch& batch, const wire::Assign& assign) {
  std::vector<memory::View> heads;
  for (const Piece& piece : batch.pieces) {
    std::byte* head = reserve_metadata(piece.head.size);
    if (head == nullptr) return false;
    std::memcpy(head, piece.head.data(), piece.head.size);
    wire::PartHeader header;
    std::memcpy(&header, head, sizeof header);
    header.attempt = assign.attempt;
    header.builder_incarnation = assign.builder_incarnation;
    std::memcpy(head, &header, sizeof header);
    wire::seal_part({head, piece.head.size}, system_.checksum);
    heads.push_back(metadata_.freeze(metadata_filled_, piece.head.size));
    metadata_filled_ += piece.head.size;
  }
  for (std::size_t i = 0; i < heads.size(); ++i) batch.pieces[i].head = std::move(heads[i]);
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
  const auto transport = environment_.transports->find(builder.url);
  if (!transport) {
    environment_.log(LogLevel::error, transport.error().text);
    return;
  }
  const auto open = [&](bool control) -> net::Link {
    const auto id = (*transport)->connect(builder.url, {.receive_pool = environment_.control_pool,
                                                        .handler = this,
                                                        .low_latency = control});
    if (id) return {*transport, *id};
    environment_.log(LogLevel::error, id.error().text);
    return {};
  };
  builder.data = open(false);
  if (system_.protocol == Protocol::pull) builder.request = open(true);
}

void ReadoutUnit::disconnect(Builder& builder) {
  builder.data.close(true);
  builder.request.close(true);
  builder.incarnation = 0;
  builder.data_ready = false;
  builder.queue.clear();
  builder.reconnect->cancel();
}

void ReadoutUnit::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  for (auto& builder : builders_) {
    if (builder.data == link || builder.request == link) return on_data_event(builder, event);
  }
}

void ReadoutUnit::on_data_event(Builder& builder, net::Event& event) {
  const bool is_data = builder.data.id == event.connection;
  net::Link& link = is_data ? builder.data : builder.request;
  switch (event.kind) {
  case net::EventKind::connected: {
    wire::Hello hello;
    hello.role = is_data ? wire::Role::data : wire::Role::request;
    hello.node = options_.node;
    hello.system_digest = digest_;
    hello.run = run_;
    hello.incarnation = incarnation_;
    hello.peer_incarnation = builder.incarnation;
    message::Gather first{link, *environment_.control_pool};
    first.append(hello);
    first.flush();
    if (is_data) {
      builder.data_ready = true;
      builder.queue.clear(); // again from the start: what was on its way may be lost
      for (auto& [number, batch] : batches_) {
        if (&builders_[batch.builder] != &builder ||
            batch.builder_incarnation != builder.incarnation) {
          continue;
        }
        batch.next_piece = 0;
        builder.queue.push_back(number);
      }
      pump(builder);
    }
    break;
  }
  case net::EventKind::message: {
    const bool good = !is_data && message::for_each_message(
        event.message.bytes(), [this](wire::MessageType type, std::span<const std::byte> body) {
          wire::MessageReader reader{body};
          wire::Assign assign;
          return type == wire::MessageType::assign && reader.read(assign) && on_assign(assign);
        });
    if (!good) {
      environment_.log(LogLevel::error, fmt::format("{}: a request that makes no sense", link.peer()));
      link.close(true);
    }
    break;
  }
  case net::EventKind::writable: pump(builder); break;
  case net::EventKind::closed:
    link = {};
    if (is_data) builder.data_ready = false;
    if (builder.incarnation != 0 && !builder.reconnect->active()) {
      builder.reconnect->start(*environment_.loop, environment_.loop->now() + reconnect_after);
    }
    break;
  case net::EventKind::accepted: break;
  }
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
      const auto outcome = builder.data.send(std::span{extents}.first(piece.payload.size == 0 ? 1 : 2));
      if (outcome == net::SendOutcome::backpressure) return; // `writable` follows
      if (outcome == net::SendOutcome::closed) return;       // `closed` follows
      FANIN_ASSERT(outcome == net::SendOutcome::accepted);
      counters_.bytes += piece.payload.size;
      ++counters_.messages;
      ++batch.next_piece;
    }
    builder.queue.pop_front();
  }
}

} // namespace fanin::builder
