#include "virtual/odd_numbers.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <ranges>

#include "fanin/source/emulator.hpp"
#include "fanin/source/numbering.hpp"
#include "fanin/source/pacer.hpp"

namespace fanin::testing {

namespace {
constexpr std::size_t close = 4; // fragments: faults so near to each other act together

// Each fragment has the payload of an emulator for "event" number `index`, in Sender::sent.
constexpr std::size_t payload_least = 16; // bytes: the index, the source, the size
std::uint64_t index_in(const storage::StoredFragment& fragment) {
  std::uint64_t index = 0;
  std::memcpy(&index, fragment.bytes.data(), sizeof index);
  return index;
}
} // namespace

class OddSource final : public source::Source {
public:
  OddSource(OddNumbers& all, SourceId id)
      : all_(all), id_(id), sender_(all.senders_.at(id)), pacer_(all.rate_hz_) {}

  Result<> start(EventNumber first_event, Time now) override {
    first_event += static_cast<std::uint64_t>(sender_.offset); // it is told its counter's value
    index_ = all_.index_from(first_event - std::min(first_event, sender_.shift));
    pacer_.start(now);
    to_send_.clear();
    return {};
  }

  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    sender_.limit = queue.limit();
    const std::uint64_t due = pacer_.due_until(index_, now);
    for (int i = 0; i < 200; ++i) {
      if (to_send_.empty()) {
        if (index_ >= sender_.dies_at) return {};
        if (index_ >= sender_.ends_at) return {source::ReadState::finished};
        if (index_ >= due) return {source::ReadState::waiting, pacer_.wake(index_, now)};
        const bool wanted = all_.number_of(index_) + sender_.shift < queue.limit();
        if (!wanted) return {};
        draw(queue.options().fragment_max);
        if (to_send_.empty()) continue; // lost
      }
      if (!send(queue)) return {};
    }
    return {source::ReadState::more};
  }

private:
  struct Send {
    OddNumbers::Fragment fragment;
    std::size_t size = 0;
  };

  // What it sends for the next event.
  void draw(std::uint32_t fragment_max) {
    Random& random = sender_.random;
    const bool garbage = sender_.has_first && sender_.sent.size() < sender_.wrong_first;
    const bool gap = index_ > 0 && all_.jumps_at(index_);
    const EventNumber right = all_.number_of(index_) + sender_.shift;
    const bool must_come = sender_.has_first && !garbage && index_ == 0;
    if (!garbage) ++index_;
    const std::size_t size =
        random.chance(1, 100) ? fragment_max : payload_least + random.below(200);
    Send good{{.right = right, .number = right, .gap = gap}, size};
    Send bad = good;
    bad.fragment.fault = true;
    const bool first = sender_.sent.size() < sender_.wrong_first;
    if (must_come ||
        (!first && (sender_.fault_every == 0 || !random.chance(1, sender_.fault_every)))) {
      to_send_.push_back(good);
      return;
    }
    switch (first ? 0 : random.below(8)) {
    default: bad.fragment.number = flipped(right, random); break;
    case 3: sender_.sent.push_back(bad.fragment); return; // lost
    case 4: bad.fragment.number += 1 + random.below(100'000); break;
    case 5: bad.fragment.number -= std::min(right, 1 + random.below(100)); break;
    case 6: bad.size = fragment_max + 1; break;
    case 7: to_send_.push_back(good); break; // and once more
    }
    to_send_.push_back(bad);
  }

  // As the event number that its counter then stands for.
  [[nodiscard]] EventNumber flipped(EventNumber right, Random& random) const {
    const source::Numbering numbering{sender_.bits, sender_.offset};
    const auto bit = random.below(static_cast<std::uint64_t>(sender_.bits) - 1);
    return numbering.near(counter_of(right) ^ std::uint64_t{1} << bit, right);
  }
  [[nodiscard]] std::uint64_t counter_of(EventNumber event) const {
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - sender_.bits);
    return (event - static_cast<std::uint64_t>(sender_.offset)) & all;
  }

  bool send(source::FragmentQueue& queue) {
    const Send& next = to_send_.front();
    bytes_.resize(next.size);
    source::fill_emulated_payload(bytes_, sender_.sent.size(), id_);
    const auto outcome = queue.write(counter_of(next.fragment.number), bytes_);
    if (outcome == source::WriteOutcome::full) return false;
    sender_.sent.push_back(next.fragment);
    to_send_.erase(to_send_.begin());
    return true;
  }

  OddNumbers& all_;
  SourceId id_;
  OddNumbers::Sender& sender_;
  source::Pacer pacer_;
  std::uint64_t index_ = 0;
  std::vector<Send> to_send_;
  std::vector<std::byte> bytes_;
};

OddNumbers::OddNumbers(std::uint64_t seed, VirtualSystemOptions& options, bool counters)
    : system_(options.system),
      rate_hz_(options.system.trigger_rate_hz > 0 ? 0 : options.source_rate_hz) {
  Random random{seed};
  options.check_bytes = [](const storage::StoredFragment& fragment, EventNumber) {
    return fragment.bytes.size() >= payload_least &&
           source::check_emulated_payload(fragment.bytes, index_in(fragment), fragment.source);
  };
  if (rate_hz_ > 0) { // else the trigger numbers the events
    constexpr std::array<EventNumber, 4> firsts{0, 1000, 1'000'000'000, EventNumber{1} << 50};
    first_ = firsts[random.below(firsts.size())];
    std::uint64_t index = 0;
    for (std::uint64_t i = random.below(20); i > 0; --i) {
      constexpr std::array<EventNumber, 4> counts{1, 100, 1'000'000, 1'000'000'000'000};
      index += 1 + random.below(2000);
      jumps_.push_back({index, 1 + random.below(counts[random.below(counts.size())])});
    }
    constexpr std::array<EventNumber, 4> steps{30, 3000, 40'000, 1'000'000};
    if (seed / 2 % 8 == 6) step_ = steps[seed / 16 % steps.size()];
    bursts_ = seed / 2 % 8 == 3 && system_.sources.size() > 1;
    if (bursts_) draw_bursts(Random{random.next()});
  }
  constexpr std::array<std::uint64_t, 4> every{0, 1000, 100, 15};
  for (builder::SourceInfo& info : options.system.sources) {
    Sender& sender = senders_[info.id];
    sender.random = Random{random.next()};
    sender.fault_every = every[random.below(every.size())];
    sender.wrong_first = random.chance(1, 4) ? 1 + random.below(3) : 0;
    if (random.chance(1, 6)) {
      info.required = false;
      if (rate_hz_ > 0 && step_ == 1 && !bursts_)
        sender.shift = random.below(random.chance(1, 2) ? 20 : 3000);
    }
  }
  for (auto& [id, sender] : senders_) {
    if (!bursts_ && random.chance(1, 10)) sender.dies_at = random.below(5000);
  }
  for (auto& [id, sender] : senders_) {
    if (rate_hz_ > 0 && !bursts_ && random.chance(1, 10)) sender.ends_at = random.below(5000);
  }
  if (counters) draw_counters(Random{random.next()}, options);
}

// Some counters wrap during the run. Numbers jump by far less than half of what they count, so that
// a source that loses some still knows its turn. Where most numbers are left out, or jump often,
// counters are wide: a flipped bit of a narrow one is too often a number that may be right.
void OddNumbers::draw_counters(Random random, VirtualSystemOptions& options) {
  constexpr std::array<int, 3> widths{24, 32, 48};
  const int width = widths[random.below(widths.size())];
  const int narrow = step_ > 1 || bursts_ ? 64 : width;
  for (Jump& jump : jumps_) jump.count = std::min(jump.count, EventNumber{1} << (narrow - 5));
  for (auto& [id, sender] : senders_) {
    if (random.chance(1, 3)) continue;
    sender.bits = random.chance(2, 3) ? narrow : 64;
    const std::uint64_t range = sender.bits == 64 ? EventNumber{1} << 40 : EventNumber{1} << narrow;
    const EventNumber first = number_of(0) + sender.shift;
    const std::uint64_t begins =
        random.chance(1, 2) ? range - 2000 - random.below(5000) : 1000 + random.below(range / 2);
    sender.offset = static_cast<std::int64_t>(first - begins);
    sender.has_first = random.chance(1, 3);
  }
  options.queue = [this](const builder::SourceInfo& info, source::FragmentQueueOptions& queue) {
    const Sender& sender = senders_.at(info.id);
    queue.counter_bits = sender.bits;
    queue.offset = sender.offset;
    if (sender.has_first) queue.first = number_of(0) + sender.shift;
  };
}

// Numbers are left out everywhere, few or many, often right after one another.
void OddNumbers::draw_bursts(Random random) {
  jumps_.clear();
  std::uint64_t index = 0;
  for (int i = 0; i < 200; ++i) {
    constexpr std::array<EventNumber, 4> counts{2, 100, 100'000, 10'000'000};
    index += 1 + random.below(random.chance(1, 2) ? 3 : 50);
    jumps_.push_back({index, counts[random.below(counts.size())]});
  }
}

OddNumbers::~OddNumbers() = default;

std::unique_ptr<source::Source> OddNumbers::make(const builder::SourceInfo& info) {
  return std::make_unique<OddSource>(*this, info.id);
}

EventNumber OddNumbers::number_of(std::uint64_t index) const {
  EventNumber number = first_ + index * step_ + (index * 0x9e3779b97f4a7c15U >> 33) % step_;
  for (const Jump& jump : jumps_) {
    if (jump.index <= index) number += jump.count;
  }
  return number;
}

bool OddNumbers::jumps_at(std::uint64_t index) const {
  return std::ranges::find(jumps_, index, &Jump::index) != jumps_.end();
}

std::uint64_t OddNumbers::index_from(EventNumber number) const {
  const auto indices = std::views::iota(std::uint64_t{0}, number - std::min(number, first_));
  return *std::ranges::partition_point(
      indices, [&](std::uint64_t index) { return number_of(index) < number; });
}

std::string OddNumbers::check(VirtualSystem& system,
                              const std::function<bool(const builder::SourceInfo&)>& spared) {
  if (auto wrong = count_stored(system); !wrong.empty()) return wrong;
  for (const builder::SourceInfo& info : system_.sources) {
    if (!spared(info)) continue;
    if (auto wrong = check(info, given_up_until(system, info)); !wrong.empty()) return wrong;
  }
  return {};
}

std::string OddNumbers::count_stored(const VirtualSystem& system) {
  std::string wrong;
  system.for_each_stored([&](const storage::StoredEvent& event) {
    for (const auto& fragment : event.fragments) {
      const std::uint64_t index = index_in(fragment);
      auto& sent = senders_.at(fragment.source).sent;
      if (index >= sent.size() || sent[index].number != event.row.event) {
        wrong = fmt::format("event {} holds what source {} never sent for it", event.row.event,
                            fragment.source);
        continue;
      }
      ++sent[index].stored;
    }
  });
  return wrong;
}

// Of a source that was silent, each time, in ascending order. What it sends then may be late until
// it is back.
std::vector<EventNumber> OddNumbers::given_up_until(const VirtualSystem& system,
                                                    const builder::SourceInfo& info) {
  const std::string words = fmt::format(": source {} is silent: given up until event ", info.name);
  const std::string back = fmt::format(": source {} is back at event ", info.name);
  std::vector<EventNumber> ends;
  bool silent = false;
  for (const std::string& line : system.log()) {
    const auto number_behind = [&](const std::string& text) -> std::optional<EventNumber> {
      const auto at = line.find(text);
      if (at == std::string::npos) return {};
      return std::stoull(line.substr(at + text.size()));
    };
    const auto given_up = number_behind(words);
    const auto returned = number_behind(back);
    if (given_up && !silent) ends.push_back(*given_up);
    if (silent && (given_up || returned))
      ends.back() = std::max(ends.back(), *(given_up ? given_up : returned));
    silent = given_up || (silent && !returned);
  }
  if (silent) ends.back() = ~EventNumber{0};
  std::ranges::sort(ends);
  return ends;
}

std::string OddNumbers::check(const builder::SourceInfo& info,
                              const std::vector<EventNumber>& silences) {
  const Sender& sender = senders_.at(info.id);
  EventNumber accepted = 0; // wrong numbers below this one were taken
  EventNumber given_up = 0; // all below may be late
  const std::size_t afresh_at = begins_afresh_at(sender);
  for (std::size_t i = 0; i < sender.sent.size(); ++i) {
    const Fragment& fragment = sender.sent[i];
    const bool beyond = fragment.number >= sender.limit; // it may be stored, or not
    if (fragment.fault && (fragment.stored > 0 || (beyond && confirmed(info.id, i)))) {
      accepted = std::max(accepted, fragment.number + 1);
    }
    const bool behind = fragment.right < accepted; // the source is ahead of itself
    if (behind) { // of its fragments none is taken, which may be a silence
      const auto end = std::ranges::upper_bound(silences, accepted);
      if (end != silences.end()) given_up = *end;
    }
    if (fragment.stored < 2 && fragment.fault && looks_right(sender, i)) continue;
    if (fragment.stored < 2 && !fragment.fault && looks_wrong(sender, i)) continue;
    if (fragment.stored < 2 && fragment.fault && i > 0 && looks_wrong(sender, i - 1)) continue;
    if (fragment.stored == (fragment.fault ? 0U : 1U) || (beyond && fragment.stored < 2)) continue;
    if (fragment.stored == 0 && i < afresh_at) continue;
    const bool late = fragment.right < given_up;
    if (fragment.stored < 2 && (behind || late || explained(info, i))) continue;
    return fmt::format("source {}: event {} was stored {} times; it sent (from {} on)\n{}",
                       info.name, fragment.number, fragment.stored, i, history(info.id, i));
  }
  return {};
}

// Before the run has an event of it, two wrong numbers that fall and go on look like a counter that
// was reset: what came before is of no event then.
std::size_t OddNumbers::begins_afresh_at(const Sender& sender) const {
  std::size_t afresh_at = 0;
  const auto& sent = sender.sent;
  for (std::size_t i = 1; i < sent.size() && sent[i - 1].stored == 0; ++i) {
    if (!sent[i].fault || sent[i].number >= sent[i].right) continue;
    for (std::size_t k = i + 1; k < std::min(sent.size(), i + close); ++k) {
      const bool goes_on = sent[k].number > sent[i].number && sent[k].number < sent[i].right;
      if (sent[k].fault && goes_on) afresh_at = i;
    }
  }
  return afresh_at;
}

// Where most numbers are left out, a wrong one may lie between those of its neighbours.
// Or between the two before it: then the second of these looks wrong.
bool OddNumbers::looks_right(const Sender& sender, std::size_t at) const {
  const auto& sent = sender.sent;
  return step_ > 1 && at > 0 && at + 1 < sent.size() && sent[at].number > sent[at - 1].right &&
         sent[at].number < sent[at + 1].right;
}
bool OddNumbers::looks_wrong(const Sender& sender, std::size_t at) const {
  const auto& sent = sender.sent;
  return step_ > 1 && at > 0 && at + 1 < sent.size() && sent[at + 1].fault &&
         sent[at + 1].number > sent[at - 1].right && sent[at + 1].number < sent[at].right;
}

// Two things that happen close together may cost a good fragment, or confirm a wrong number: faults
// of the source, or of another one of its readout unit; numbers that are left out everywhere, where
// the others may be away, or (in bursts) may lack just the fragment that would confirm this one;
// the beginning and the end.
bool OddNumbers::explained(const builder::SourceInfo& info, std::size_t at) const {
  const auto& sent = senders_.at(info.id).sent;
  std::size_t reasons = at < close ? 1 : 0;
  std::size_t gaps = 0;
  if (at + close >= sent.size() || sent[at + close].number >= senders_.at(info.id).limit) ++reasons;
  for (std::size_t i = at < close ? 0 : at - close; i < std::min(sent.size(), at + close + 1);
       ++i) {
    reasons += sent[i].fault ? 1U : 0U;
    gaps += sent[i].gap ? 1U : 0U;
  }
  // A jump before a jump is known from the others alone, who may be late.
  const auto leaps_at = [&](std::size_t i) {
    return i > 0 && i < sent.size() && sent[i].right - sent[i - 1].right > system_.event_window;
  };
  if (leaps_at(at) && leaps_at(at + 1)) return true;
  const auto enough = [&] { return (reasons > 0 || !bursts_) && reasons + gaps >= 2; };
  if (enough()) return true;
  for (const builder::SourceInfo& other : system_.sources) {
    if (other.id == info.id || (other.readout_unit != info.readout_unit && !bursts_)) continue;
    const auto& theirs = senders_.at(other.id).sent;
    const EventNumber near = close * step_;
    const EventNumber low = sent[at].right - std::min(sent[at].right, near);
    auto i = std::ranges::lower_bound(theirs, low, {}, &Fragment::right);
    for (; i != theirs.end() && i->right <= sent[at].right + near; ++i)
      reasons += i->fault ? 1U : 0U;
  }
  return enough();
}

// Two wrong numbers near each other, one after the other.
bool OddNumbers::confirmed(SourceId source, std::size_t at) const {
  const auto& sent = senders_.at(source).sent;
  const auto alike = [&](std::size_t i) {
    const EventNumber a = sent[at].number;
    const EventNumber b = sent[i].number;
    return i != at && sent[i].fault &&
           std::max(a, b) - std::min(a, b) < std::max(system_.event_window, 32 * step_);
  };
  for (std::size_t i = at < close ? 0 : at - close; i < std::min(sent.size(), at + close + 1);
       ++i) {
    if (alike(i)) return true;
  }
  return false;
}

std::string OddNumbers::history(SourceId source, std::size_t at) const {
  const auto& sent = senders_.at(source).sent;
  std::string text;
  for (std::size_t i = at < 6 ? 0 : at - 6; i < std::min(sent.size(), at + 7); ++i) {
    const Fragment& one = sent[i];
    text += fmt::format("{} {} for {}{}{}, stored {}\n", i == at ? ">" : " ", one.number, one.right,
                        one.fault ? ", fault" : "", one.gap ? ", after a gap" : "", one.stored);
  }
  return text + fmt::format("limit {}\n", senders_.at(source).limit);
}

} // namespace fanin::testing
