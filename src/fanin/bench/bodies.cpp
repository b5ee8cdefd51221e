#include "fanin/bench/bodies.hpp"

#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/contenders.hpp"
#include "fanin/bench/evb_processes.hpp"
#include "fanin/bench/fragment_sender.hpp"
#include "fanin/bench/members.hpp"

namespace fanin::bench {
namespace {

Result<ProcessGroup::Body> ends_body(const json::Value& task) {
  auto spec = FANIN_TRY(Spec::from_json(task.at("ends")));
  auto ends = FANIN_TRY(make_ends(spec));
  const bool listens = task.find("listen") != nullptr;
  const std::size_t index = task.at(listens ? "listen" : "connect").natural();
  if (index >= (listens ? ends.listeners : ends.connectors))
    return fail(ErrorKind::malformed, "no such process");
  if (listens)
    return [own = std::move(ends), index](ProcessStats& stats) { return own.listen(index, stats); };
  std::vector<std::string> addresses;
  for (const auto& address : task.at("addresses").list()) addresses.push_back(address.text());
  return [own = std::move(ends), addresses, index](ProcessStats& stats) {
    return own.connect(index, addresses, stats);
  };
}

} // namespace

json::Value end_task(const Spec& spec, std::size_t index,
                     const std::vector<std::string>* addresses) {
  json::Value task =
      json::Object{{"ends", spec.to_json()}, {addresses == nullptr ? "listen" : "connect", index}};
  if (addresses != nullptr) task["addresses"] = json::List(addresses->begin(), addresses->end());
  return task;
}

Result<ProcessGroup::Body> body_of(const json::Value& task) {
  if (task.find("ends") != nullptr) return ends_body(task);
  if (task.find("evb") != nullptr) return evb_body(task);
  if (const json::Value* said = task.find("send")) {
    SenderOptions options;
    FANIN_TRY(read_object(*said, options));
    return [options](ProcessStats& stats) { return send_fragments(options, stats); };
  }
  return fail(ErrorKind::malformed, "an unknown part");
}

Result<Sample> run_on_hosts(const Spec& spec, std::size_t readouts,
                            const executive::HostList& hosts, const Window& window) {
  const Ends ends = FANIN_TRY(make_ends(spec));
  const std::size_t rails = ends.listeners / spec.receivers; // others than fanin use one
  if (hosts.hosts.size() < 1 + readouts + spec.receivers ||
      hosts.hosts.size() < 1 + ends.connectors)
    return std::unexpected(
        executive::too_few_hosts(hosts, 1 + readouts + spec.receivers,
                                 fmt::format("{}x{}", ends.connectors, spec.receivers)));
  ProcessGroup group;
  group.watch_switches(hosts.switch_words);
  return run_ends(group, ends, window, [&](std::size_t index, const auto* addresses) {
    const bool listens = addresses == nullptr;
    const executive::Host& host = hosts.hosts[1 + (listens ? readouts + index / rails : index)];
    Spec own = spec;
    own.url.host = host.addresses.at(listens ? index % rails : 0);
    return group.start_on(host, fmt::format("{}{}", listens ? "listener" : "connector", index),
                          end_task(own, index, addresses));
  });
}

executive::HostList with_both_on_each(const executive::HostList& hosts, std::size_t senders) {
  executive::HostList both = hosts;
  both.hosts.resize(1 + senders);
  for (std::size_t i = 0; i < senders; ++i) both.hosts.push_back(hosts.hosts[1 + i]);
  return both;
}

} // namespace fanin::bench
