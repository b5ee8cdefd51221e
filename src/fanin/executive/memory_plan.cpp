#include "fanin/executive/memory_plan.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/building/builder_unit.hpp"
#include "fanin/builder/metadata.hpp"
#include "fanin/executive/event_publisher.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/source/fragment_table.hpp"
#include "fanin/source/recent_fragments.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::executive {
namespace {

using config::Configuration;
using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t queues_all = 18U << 20; // bytes
constexpr std::uint32_t window_usual = 65536;
constexpr std::uint32_t window_most = 1U << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

// A size for the configuration that has at least so many bytes.
std::uint64_t handy_size(std::uint64_t bytes) {
  return round_up(bytes, bytes < (1U << 20) ? 1U << 10 : 1U << 20);
}

// The key that the node's buffer comes from.
std::string buffer_key(const Configuration& configuration, const config::Node& node) {
  std::string own = node.key + ".buffer";
  if (settings::find_path(configuration.written, own) != nullptr) return own;
  return node.role == config::Role::readout ? "buffers.readout" : "buffers.builder";
}

// `enough`: bytes that all nodes can work with whose buffer comes from this key.
std::unexpected<Error> too_small(const Configuration& configuration, const config::Node& node,
                                 std::uint64_t enough, std::string_view reason,
                                 std::string_view other_remedy) {
  const std::string key = buffer_key(configuration, node);
  const std::string causes[] = {
      key,     "trigger",      "source",       "readout",           "filter",
      "event", "buffers.hold", "buffers.page", "network.dead_after"};
  return std::unexpected(configuration.wrong(
      key,
      fmt::format("{} is too small for \"{}\": {}; set it to \"{}\", or {}",
                  format_size(node.buffer), node.name, reason, exact_size(enough), other_remedy),
      causes));
}

// The mean of the emulator's sizes, from its settings; 0: not known, the source will say why.
double emulated_size(const config::Source& source) {
  const auto size = [&source](const char* key) -> double {
    const auto found = source.settings.values.find(key);
    if (found == source.settings.values.end()) return -1;
    return static_cast<double>(parse_size(found->second.value).value_or(0));
  };
  if (const double mean = size("size_mean"); mean >= 0) return mean;
  if (const double most = size("size_max"); most >= 0)
    return (most + std::max(size("size_min"), 0.0)) / 2;
  if (const double fixed = size("size"); fixed >= 0) return fixed;
  return source::emulated_size_default;
}

double event_rate(const Configuration& configuration, const config::Source& source) {
  if (configuration.system.trigger_rate_hz > 0) return configuration.system.trigger_rate_hz;
  const auto rate = source.settings.values.find("rate");
  return rate == source.settings.values.end() ? 0 : parse_rate_hz(rate->second.value).value_or(0);
}

bool several_hosts(const Configuration& configuration) {
  const std::string& first = configuration.nodes.front().host;
  return std::ranges::any_of(configuration.nodes,
                             [&first](const config::Node& node) { return node.host != first; });
}

// Small enough that each source has some pages, large enough that batches lie in few pieces.
std::uint32_t source_page(std::uint64_t share, std::uint32_t data_page, const PageSizes& sizes) {
  std::uint32_t page = sizes.source_most == 0 ? data_page : sizes.source_most;
  while (page > sizes.source_least && share / page < 8) page /= 2;
  return page;
}

std::uint64_t queue_bytes(std::uint32_t window) {
  return source::FragmentTable::bytes_for(window) + source::RecentFragments::bytes_for(window);
}

std::uint32_t window_of(const Configuration& configuration, std::size_t sources, double rate_hz) {
  const double wanted = rate_hz * Seconds(hold_time(configuration)).count();
  std::uint32_t window = window_usual;
  while (window < wanted && window < window_most) window *= 2;
  while (window > 2 * configuration.system.batch_events &&
         sources * queue_bytes(window) > queues_all) {
    window /= 2;
  }
  return std::max(window, 2 * configuration.system.batch_events);
}

// One size for all nodes, since a message is as long as the sender's page allows. Many peers have
// short messages.
std::uint32_t control_page(const Configuration& configuration, const PageSizes& sizes) {
  const std::size_t nodes = configuration.nodes.size();
  const std::uint32_t usual = nodes > 64 && nodes <= 1024 ? 16U << 10 : 64U << 10;
  const std::uint32_t page = sizes.control == 0 ? usual : sizes.control;
  std::size_t sources = 0; // of one readout unit
  for (std::size_t i = 0; i < configuration.readouts(); ++i) {
    const auto [first, last] = configuration.sources_of(i);
    sources = std::max<std::size_t>(sources, last - first);
  }
  return std::max(page, std::bit_ceil(builder::control_page_least(sources)));
}

// Messages of one turn to each peer and from it, with some room, and what the network posts.
PoolPlan control_pool(const Configuration& configuration, const PageSizes& sizes, std::size_t peers,
                      std::uint32_t posted) {
  return {control_page(configuration, sizes), static_cast<std::uint32_t>(64 + 8 * peers) + posted};
}

// Pages that connections hold where receives are posted ahead, and one where messages lie together.
// While connections move from a lost rail to another one, the old ones may still be there. `each`:
// there are so many over each rail at the same time.
std::uint32_t posted_pages(const net::TransportRegistry& transports,
                           std::span<const net::Url> rails, std::size_t connections,
                           bool each = false) {
  const auto most = static_cast<std::uint32_t>(rails.size() > 1 ? 2 * connections : connections);
  std::uint32_t pages = 0;
  for (const net::Url& url : rails) {
    const std::uint32_t here = transports.pages_in_advance(url, most);
    pages = each ? pages + here : std::max(pages, here);
  }
  return pages == 0 ? 0 : pages + 1;
}

// A readout unit's over a rail to a builder unit: the data's, and with pull that of the requests.
std::size_t connections_each(const Configuration& configuration) {
  return configuration.system.protocol == builder::Protocol::pull ? 2 : 1;
}

// The buffer is shared out by expected rate where that is known for all. Else those whose rate is
// known get what they need, and all an even share of the rest. Gives what all need at least for
// their largest fragments: more in a larger buffer, as pages are larger there.
std::uint64_t plan_sources(const Configuration& configuration, const PageSizes& sizes,
                           std::uint64_t buffer, std::size_t readout, NodePlan& plan) {
  const auto [first, last] = configuration.sources_of(readout);
  const std::size_t count = last - first;
  bool all_known = true;
  double events_hz = 0;
  for (std::size_t i = first; i < last; ++i) {
    const double rate = expected_rate(configuration, configuration.sources[i]);
    all_known = all_known && rate > 0;
    plan.bytes_per_s += rate;
    events_hz = std::max(events_hz, event_rate(configuration, configuration.sources[i]));
  }
  const double hold_s = Seconds(hold_time(configuration)).count();
  const double rest = std::max(0.0, static_cast<double>(buffer) - plan.bytes_per_s * hold_s);
  std::uint64_t least_in_all = 0;
  for (std::size_t i = first; i < last; ++i) {
    const config::Source& source = configuration.sources[i];
    const double rate = expected_rate(configuration, source);
    const auto share =
        static_cast<std::uint64_t>(all_known ? static_cast<double>(buffer) * rate / plan.bytes_per_s
                                             : rate * hold_s + rest / static_cast<double>(count));
    const std::uint32_t page = source_page(share, configuration.system.data_page, sizes);
    // A fragment of the largest size that begins within a page, and one page being cut and sent.
    const std::uint64_t least =
        std::max<std::uint64_t>(2, (source.queue.fragment_max + page - 1) / page + 1);
    const std::uint64_t pages = std::max(least, share / page);
    least_in_all += least * page;
    plan.sources.push_back({page, static_cast<std::uint32_t>(pages)});
  }
  plan.window = window_of(configuration, count, events_hz);
  plan.queues = count * queue_bytes(plan.window);
  plan.needed = static_cast<std::uint64_t>(plan.bytes_per_s * hold_s);
  return least_in_all;
}

// The readout unit's buffer if it is large enough, else one that is.
std::uint64_t enough_for_readout(const Configuration& configuration, const PageSizes& sizes,
                                 std::size_t readout) {
  std::uint64_t buffer = configuration.nodes[configuration.readout_node(readout)].buffer;
  for (;;) {
    NodePlan plan;
    const std::uint64_t largest = plan_sources(configuration, sizes, buffer, readout, plan);
    const std::uint64_t least = std::max(largest, plan.needed);
    if (least <= buffer) return buffer;
    buffer = handy_size(least);
  }
}

// As its size comes from one key, the readout units that have it from there are asked, too.
std::uint64_t enough_for_alike(const Configuration& configuration, const PageSizes& sizes,
                               const config::Node& node) {
  const std::string key = buffer_key(configuration, node);
  std::uint64_t enough = 0;
  for (std::size_t i = 0; i < configuration.readouts(); ++i) {
    if (buffer_key(configuration, configuration.nodes[configuration.readout_node(i)]) == key)
      enough = std::max(enough, enough_for_readout(configuration, sizes, i));
  }
  return enough;
}

Result<> check_readout_buffer(const Configuration& configuration, const PageSizes& sizes,
                              const config::Node& node, std::size_t readout, const NodePlan& plan,
                              std::uint64_t largest) {
  if (largest > node.buffer) {
    const std::size_t first = configuration.sources_of(readout).first;
    return too_small(configuration, node, enough_for_alike(configuration, sizes, node),
                     fmt::format("{} whose fragments may have {} need {}",
                                 counted(plan.sources.size(), "source"),
                                 format_size(configuration.sources[first].queue.fragment_max),
                                 format_size(largest)),
                     "lower fragment_max");
  }
  if (plan.needed <= node.buffer) return {};
  return too_small(configuration, node, enough_for_alike(configuration, sizes, node),
                   fmt::format("{} for {} (buffers.hold + event.latency{}{}) take {}",
                               format_bandwidth(plan.bytes_per_s),
                               format_duration(hold_time(configuration)),
                               configuration.has_filters() ? " + filter.latency" : "",
                               several_hosts(configuration) ? " + network.dead_after" : "",
                               format_size(plan.needed)),
                   "lower the rate");
}

// Of each builder unit one is begun: so a few batches, and no more, lie in each.
std::uint32_t metadata_page(const Configuration& configuration, const PageSizes& sizes,
                            std::size_t sources) {
  constexpr std::uint64_t batches = 8;
  if (sizes.metadata != 0) return sizes.metadata;
  const std::uint64_t batch =
      sources * builder::metadata_per_source(configuration.system.batch_events);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_ceil(batches * batch), 4U << 10, 64U << 10));
}

Result<> plan_readout(const Configuration& configuration, const net::TransportRegistry& transports,
                      const PageSizes& sizes, const config::Node& node, std::size_t readout,
                      NodePlan& plan) {
  const std::uint64_t largest = plan_sources(configuration, sizes, node.buffer, readout, plan);
  std::uint32_t posted = posted_pages(transports, configuration.event_manager().urls, 1);
  for (std::size_t i = 0; i < configuration.builders(); ++i) {
    posted += posted_pages(transports, configuration.nodes[configuration.builder_node(i)].urls,
                           connections_each(configuration), true);
  }
  const std::size_t lanes = configuration.system.lanes(static_cast<NodeId>(readout));
  plan.control = control_pool(configuration, sizes, 1 + configuration.builders() * lanes, posted);
  // A page has metadata of one builder unit's batches.
  const std::uint32_t page = metadata_page(configuration, sizes, plan.sources.size());
  builder::MetadataLayout layout{.page = page,
                                 .batch_events = configuration.system.batch_events,
                                 .message_max = configuration.system.message_max(),
                                 .builders = configuration.builders(),
                                 .sources = plan.sources.size(),
                                 .source_page = configuration.system.data_page,
                                 .fills_carriers = configuration.system.shaping.fills_carriers()};
  for (const PoolPlan& pool : plan.sources) {
    layout.payload += pool.bytes();
    layout.source_page = std::min(layout.source_page, pool.page_size);
  }
  const std::uint64_t metadata = std::max(sizes.metadata_least, round_up(node.buffer / 8, page));
  plan.metadata = {page,
                   static_cast<std::uint32_t>(std::max(metadata / page, layout.pages_least()))};
  return check_readout_buffer(configuration, sizes, node, readout, plan, largest);
}

std::uint64_t largest_event(const Configuration& configuration) {
  std::uint64_t largest = 4096;
  for (const config::Source& source : configuration.sources)
    largest += source.queue.fragment_max + sizeof(wire::FragmentEntry) + 256;
  return largest;
}

// What the network of filter units holds ready at a builder unit.
std::uint32_t filter_pages(const Configuration& configuration,
                           const net::TransportRegistry& transports, const config::Node& node) {
  if (!node.filter_url) return 0;
  return posted_pages(transports, {&*node.filter_url, 1}, configuration.filters());
}

// For the batches that filter units have at the same time (FilterServer).
std::uint32_t set_aside_pages(const Configuration& configuration, const config::Node& builder) {
  const std::uint64_t batch =
      std::max(configuration.system.batch_size, largest_event(configuration));
  const std::uint64_t batches = batches_at_filters(configuration, builder);
  return static_cast<std::uint32_t>(
      batches * builder::receive_pages(batch, configuration.system.data_page, 0));
}

// All batches that builder units may send at the same time, so that none waits for another one's
// pages. Over shared memory they stay where they are.
void plan_filter(const Configuration& configuration, const net::TransportRegistry& transports,
                 const PageSizes& sizes, std::size_t index, NodePlan& plan) {
  const std::uint32_t page = configuration.system.data_page;
  const auto builders = configuration.builders_of(index);
  const std::uint64_t batch =
      std::max(configuration.system.batch_size, largest_event(configuration));
  std::uint64_t pages = 4;
  for (const std::size_t builder : builders) {
    const net::Url& url = *configuration.nodes[configuration.builder_node(builder)].filter_url;
    const bool shared = transports.shares_memory(url);
    const std::uint64_t batches = configuration.nodes[index].filter_ahead;
    pages += shared ? 2 : batches * builder::receive_pages(batch, page, 1);
    pages += posted_pages(transports, {&url, 1}, 1);
  }
  plan.receive = {page, static_cast<std::uint32_t>(pages)};
  plan.control = control_pool(configuration, sizes, builders.size(), 0);
}

Result<> plan_builder(const Configuration& configuration, const net::TransportRegistry& transports,
                      const PageSizes& sizes, const config::Node& node, NodePlan& plan) {
  const std::uint32_t page = configuration.system.data_page;
  plan.control =
      control_pool(configuration, sizes, 1 + configuration.system.lanes() + configuration.filters(),
                   posted_pages(transports, configuration.event_manager().urls, 1) +
                       filter_pages(configuration, transports, node));
  if (configuration.monitoring.on()) {
    plan.published = {publisher_page, publisher_pages};
    plan.readers = {reader_page, reader_pages};
    if (node.monitoring_url)
      plan.readers.pages += posted_pages(transports, {&*node.monitoring_url, 1}, readers_max);
    plan.queues = readers_max * reader_queue;
    if (largest_event(configuration) > small_event_max) plan.queues += large_events_max;
  }
  plan.receive_shared = node.filter_url && transports.shares_memory(*node.filter_url);
  const auto pages =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(node.buffer / page, UINT32_MAX / 4));
  plan.posted = posted_pages(transports, node.urls,
                             configuration.readouts() * connections_each(configuration), true);
  plan.set_aside = set_aside_pages(configuration, node);
  plan.receive = {page, pages + plan.posted + plan.set_aside};
  double total = 0;
  for (const config::Source& source : configuration.sources)
    total += expected_rate(configuration, source);
  const std::uint64_t largest = largest_event(configuration);
  plan.bytes_per_s = total / static_cast<double>(configuration.builders());
  const std::uint64_t capacity = builder::build_capacity(pages, page, configuration.system.lanes());
  const Duration hold = configuration.buffers.hold + filter_latency(configuration);
  const auto at_rate = static_cast<std::uint64_t>(plan.bytes_per_s * Seconds(hold).count());
  const std::uint64_t least = std::max({largest, 2 * configuration.system.batch_size, at_rate});
  plan.needed = builder::receive_pages(least, page, configuration.system.lanes()) * page;
  if (capacity >= least) return {};
  const std::uint64_t enough = handy_size(plan.needed);
  if (least == at_rate) {
    return too_small(configuration, node, enough,
                     fmt::format("{} for {} (buffers.hold{}) take {}",
                                 format_bandwidth(plan.bytes_per_s), format_duration(hold),
                                 configuration.has_filters() ? " + filter.latency" : "",
                                 format_size(plan.needed)),
                     "add builder units");
  }
  return too_small(configuration, node, enough,
                   fmt::format("{} ({}) in pages of {}, from {}, take {}",
                               least == largest ? "the largest possible event" : "two batches",
                               format_size(least), format_size(page),
                               counted(configuration.readouts(), "readout unit"),
                               format_size(plan.needed)),
                   least == largest ? "lower fragment_max" : "lower event.batch_size");
}

} // namespace

std::uint64_t NodePlan::payload() const {
  std::uint64_t sum = receive.bytes();
  for (const PoolPlan& pool : sources) sum += pool.bytes();
  return sum;
}

std::uint64_t NodePlan::pools() const {
  return payload() + control.bytes() + metadata.bytes() + published.bytes() + readers.bytes();
}

std::uint64_t NodePlan::total() const { return pools() + queues; }

Duration hold_time(const Configuration& configuration) {
  return configuration.buffers.hold + configuration.system.latency + filter_latency(configuration) +
         (several_hosts(configuration) ? configuration.system.dead_after : Duration{0});
}

Duration filter_latency(const Configuration& configuration) {
  Duration latency{};
  for (const config::Node& node : configuration.nodes)
    latency = std::max(latency, node.filter_latency);
  return latency;
}

std::uint64_t batches_at_filters(const Configuration& configuration, const config::Node& builder) {
  std::uint64_t batches = 0;
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    if (configuration.nodes[i].role != config::Role::filter) continue;
    for (const std::size_t reached : configuration.builders_of(i)) {
      if (&configuration.nodes[configuration.builder_node(reached)] == &builder)
        batches += configuration.nodes[i].filter_ahead;
    }
  }
  return batches;
}

double expected_rate(const Configuration& configuration, const config::Source& source) {
  if (source.expected_bytes_per_s) return *source.expected_bytes_per_s;
  if (source.settings.type != "emulator") return 0;
  return emulated_size(source) * event_rate(configuration, source);
}

Result<std::vector<NodePlan>> plan_memory(const Configuration& configuration,
                                          const net::TransportRegistry& transports,
                                          const PageSizes& sizes) {
  std::vector<NodePlan> plans(configuration.nodes.size());
  const std::size_t peers = configuration.nodes.size() - 1;
  plans.front().control =
      control_pool(configuration, sizes, peers,
                   posted_pages(transports, configuration.event_manager().urls, peers));
  for (std::size_t i = 0; i < configuration.readouts(); ++i) {
    const std::size_t node = configuration.readout_node(i);
    FANIN_TRY(
        plan_readout(configuration, transports, sizes, configuration.nodes[node], i, plans[node]));
  }
  for (std::size_t i = 0; i < configuration.builders(); ++i) {
    const std::size_t node = configuration.builder_node(i);
    FANIN_TRY(
        plan_builder(configuration, transports, sizes, configuration.nodes[node], plans[node]));
  }
  for (std::size_t node = 0; node < configuration.nodes.size(); ++node) {
    if (configuration.nodes[node].role == config::Role::filter)
      plan_filter(configuration, transports, sizes, node, plans[node]);
  }
  return plans;
}

} // namespace fanin::executive
