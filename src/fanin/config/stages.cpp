#include "fanin/config/stages.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/units.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/net/address.hpp"
#include "fanin/settings/reader.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::config {
namespace {

// A source of a slice that groups may forward to.
struct Receiver {
  const Configuration* slice = nullptr;
  const Source* source = nullptr;
  net::Url listen;
  const Configuration* group = nullptr; // that forwards to it
};

std::string id_text(SourceId id) { return fmt::format("{:#x}", id); }

std::string ids_text(const std::set<SourceId>& ids) {
  constexpr std::size_t shown = 8;
  std::vector<std::string> texts;
  for (const SourceId id : ids) {
    texts.push_back(texts.size() < shown ? id_text(id) : "...");
    if (texts.size() > shown) break;
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<Receiver> receivers_of(const Configuration& slice) {
  std::vector<Receiver> receivers;
  for (const Source& source : slice.sources) {
    const auto listen = source.settings.values.find("listen");
    if (source.settings.type != "receive" || listen == source.settings.values.end()) continue;
    if (auto url = net::Url::parse(listen->second.value)) {
      receivers.push_back({.slice = &slice, .source = &source, .listen = std::move(*url)});
    }
  }
  return receivers;
}

enum class Reaches : std::uint8_t {
  no,
  maybe, // the port is the same, and of a host only a name is known
  yes
};

// No name service is asked: the processes may run on hosts that know other names than this one.
Reaches reaches(const net::Url& url, const net::Url& listen) {
  const auto loopback = [](const std::string& host) {
    return host.empty() || net::is_loopback(host);
  };
  if (url.port != listen.port) return Reaches::no;
  if (url.host == listen.host || (loopback(url.host) && loopback(listen.host))) return Reaches::yes;
  const bool addresses =
      net::addresses_of_number(url.host) && net::addresses_of_number(listen.host);
  return addresses && !net::is_wildcard(listen.host) ? Reaches::no : Reaches::maybe;
}

class Fit {
public:
  Fit(std::span<const Configuration> configurations, settings::Problems& problems)
      : configurations_(configurations), problems_(problems) {}

  Stages find() {
    Stages stages;
    for (std::size_t i = 0; i < configurations_.size(); ++i) {
      const Configuration& one = configurations_[i];
      (one.forwards() ? stages.groups : stages.slices).push_back(i);
      if (one.forwards()) continue;
      for (Receiver& receiver : receivers_of(one)) receivers_.push_back(std::move(receiver));
    }
    if (stages.groups.empty()) {
      add(configurations_.front(), "storage.sink",
          "several configurations are two stages, and none of them forwards: set "
          "storage.sink = \"forward\" in those of the first stage, or run each by itself");
    } else if (stages.slices.empty()) {
      add(configurations_.front(), "storage.sink",
          "all of these configurations forward: give those of the slices too");
    }
    for (const std::size_t i : stages.groups) check_group(configurations_[i]);
    for (const std::size_t i : stages.slices) check_slice(configurations_[i]);
    check_outputs(stages);
    stages.run = run_number();
    return stages;
  }

private:
  // An override of the table that the key is in may have caused it.
  void add(const Configuration& configuration, std::string_view key, std::string_view text) {
    const std::string table[] = {std::string(key.substr(0, key.find('.')))};
    problems_.add(configuration.place_of(key, table), key, text);
  }
  // So may one of the other configuration's key.
  void add(const Configuration& configuration, std::string_view key, const Configuration& other,
           std::string_view other_key, std::string_view text) {
    const settings::Place place = other.place_of(other_key);
    if (!place.is_override()) return add(configuration, key, text);
    problems_.add(place, key, text);
  }
  void add(const Configuration& slice, const Source& source, std::string_view key,
           std::string_view text) {
    add(slice, fmt::format("{}.{}", source.settings.key, key), text);
  }

  void check_group(const Configuration& group) {
    for (std::size_t i = 0; i < group.forward.urls.size(); ++i) {
      if (Receiver* receiver = find_receiver(group, i)) check_pair(group, *receiver);
    }
  }

  Receiver* find_receiver(const Configuration& group, std::size_t number);
  void check_pair(const Configuration& group, Receiver& receiver);
  void check_merged(const Configuration& group, const Receiver& receiver);
  void check_slice(const Configuration& slice);
  void check_outputs(const Stages& stages);
  std::optional<RunNumber> run_number();

  std::span<const Configuration> configurations_;
  settings::Problems& problems_;
  std::vector<Receiver> receivers_; // of all slices
};

// Where the group sends what it deals to this slice.
Receiver* Fit::find_receiver(const Configuration& group, std::size_t number) {
  const net::Url& url = group.forward.urls[number];
  const std::size_t slices = group.forward.urls.size();
  const Configuration* there = nullptr; // a slice at that address with this number, or another
  const Configuration* right = nullptr; // the right one
  std::set<SourceId> ids;
  const auto has_number = [number](const Configuration* one) {
    return one->system.slice.number == number;
  };
  for (const Reaches wanted : {Reaches::yes, Reaches::maybe}) {
    for (Receiver& receiver : receivers_) {
      if (reaches(url, receiver.listen) != wanted) continue;
      const Configuration* const slice = receiver.slice;
      if (there == nullptr || (has_number(slice) && !has_number(there))) there = slice;
      if (!has_number(slice) || slice->system.slice.of != slices) continue;
      right = slice;
      if (receiver.source->settings.id == group.forward.source) return &receiver;
      ids.insert(receiver.source->settings.id);
    }
    if (there != nullptr && right == nullptr) break; // another slice is surely there
  }
  if (there == nullptr) {
    std::set<std::string> addresses;
    for (const Receiver& receiver : receivers_) addresses.insert(receiver.listen.text());
    add(group, "slice.urls",
        fmt::format("no receive source of the slices listens at {}; write where they listen: {}",
                    url.text(),
                    addresses.empty() ? "nowhere" : fmt::format("{}", fmt::join(addresses, ", "))));
  } else if (right == nullptr) {
    const wire::Slice& slice = there->system.slice;
    add(*there, "slice.number",
        fmt::format("this is slice {} of {}, but in slice.urls of {} its address {} is number {} "
                    "of {}: write number = {} and of = {}, or correct the order of slice.urls",
                    slice.number, slice.of, group.file, url.text(), number, slices, number,
                    slices));
  } else {
    add(group, "slice.source",
        fmt::format("{} is no source that listens at {} in {}; there are: {}",
                    id_text(group.forward.source), url.text(), right->file, ids_text(ids)));
  }
  return nullptr;
}

void Fit::check_pair(const Configuration& group, Receiver& receiver) {
  const Configuration& slice = *receiver.slice;
  if (const Configuration* other = std::exchange(receiver.group, &group)) {
    return add(group, "slice.source",
               fmt::format("{} forwards to source {} of {} too: each group needs a source of its "
                           "own in each slice",
                           other->file, id_text(group.forward.source), slice.file));
  }
  if (slice.system.slice.block != group.system.batch_events) {
    add(slice, "slice.block", group, "event.batch_events",
        fmt::format("is {}, but {} deals blocks of event.batch_events = {}: write block = {}",
                    slice.system.slice.block, group.file, group.system.batch_events,
                    group.system.batch_events));
  }
  check_merged(group, receiver);
  std::uint64_t most = wire::super_head_size(group.sources.size());
  for (const Source& source : group.sources) most += source.queue.fragment_max;
  if (const std::uint64_t taken = receiver.source->queue.fragment_max; taken < most) {
    add(slice, *receiver.source, "fragment_max",
        fmt::format("{} is less than a super-fragment of {} may have: write fragment_max = "
                    "\"{}B\", or lower source.fragment_max there",
                    format_size(taken), group.file, most));
  }
  if (slice.system.event_deadline <= group.forward.give_up) {
    add(slice, "event.deadline", group, "slice.give_up",
        fmt::format("{} is not longer than slice.give_up = {} of {}: while groups wait for another "
                    "slice, this one would build events without them; raise event.deadline or "
                    "lower slice.give_up",
                    format_duration(slice.system.event_deadline),
                    format_duration(group.forward.give_up), group.file));
  }
  if (slice.system.integrity && !group.system.integrity) {
    add(group, "event.integrity", slice, "event.integrity",
        fmt::format("is \"none\", but the files of {} have checksums: write \"none\" in both, or "
                    "\"crc32c\" in both",
                    slice.file));
  }
}

void Fit::check_merged(const Configuration& group, const Receiver& receiver) {
  std::set<SourceId> has;
  for (const Source& source : group.sources) has.insert(source.settings.id);
  std::set<SourceId> said;
  for (const auto& member : receiver.source->merged) said.insert(member.id);
  if (has == said) return;
  std::set<SourceId> lacking;
  std::set<SourceId> extra;
  std::ranges::set_difference(has, said, std::inserter(lacking, lacking.end()));
  std::ranges::set_difference(said, has, std::inserter(extra, extra.end()));
  add(*receiver.slice, *receiver.source, "merged",
      fmt::format("does not say what {} merges: {}{}{}", group.file,
                  lacking.empty() ? "" : "add " + ids_text(lacking),
                  lacking.empty() || extra.empty() ? "" : "; ",
                  extra.empty() ? "" : "leave out " + ids_text(extra)));
}

void Fit::check_slice(const Configuration& slice) {
  bool used = false;
  for (const Receiver& receiver : receivers_) {
    if (receiver.slice != &slice) continue;
    used = used || receiver.group != nullptr;
    if (receiver.group != nullptr || receiver.source->merged.empty()) continue;
    add(slice, *receiver.source, "merged",
        fmt::format("no group forwards to this source: give the configuration of the group with "
                    "slice.source = {}, or leave the source out",
                    id_text(receiver.source->settings.id)));
  }
  if (used) return;
  add(slice, "slice.number",
      "no group forwards to this slice: add its address to slice.urls of the groups, or leave "
      "the configuration out");
}

// Files of two slices have the same names.
void Fit::check_outputs(const Stages& stages) {
  std::map<std::filesystem::path, const Configuration*> seen;
  for (const std::size_t i : stages.slices) {
    const Configuration& slice = configurations_[i];
    if (slice.run.output.empty()) continue;
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(
        std::filesystem::absolute(slice.run.output, error), error);
    const auto [other, is_new] = seen.emplace(path, &slice);
    if (is_new) continue;
    add(slice, "run.output",
        fmt::format("{} is also the folder of {}: write another one for each slice",
                    slice.run.output, other->second->file));
  }
}

std::optional<RunNumber> Fit::run_number() {
  const Configuration* first = nullptr;
  for (const Configuration& one : configurations_) {
    if (!one.run.number) continue;
    if (first == nullptr) first = &one;
    if (*one.run.number == *first->run.number) continue;
    add(one, "run.number",
        fmt::format("is {}, but {} in {}: all stages have one run number; leave it out for the "
                    "next free one",
                    *one.run.number, *first->run.number, first->file));
  }
  return first == nullptr ? std::nullopt : first->run.number;
}

// Also one that is left out already; null: there is none.
const Source* find_source(const Configuration& configuration, const std::string& name) {
  for (const auto* sources : {&configuration.sources, &configuration.sources_left_out}) {
    for (const Source& source : *sources)
      if (source.settings.name == name) return &source;
  }
  return nullptr;
}

bool merges(const Configuration& slice, SourceId id) {
  return std::ranges::any_of(slice.sources, [id](const Source& source) {
    return std::ranges::find(source.merged, id, &storage::SourceInfo::id) != source.merged.end();
  });
}

std::string without(const std::string& name) { return "run.without+=" + settings::quoted(name); }

} // namespace

Result<std::vector<std::vector<std::string>>>
overrides_without(std::span<const Configuration> configurations,
                  std::span<const std::string> names) {
  std::vector<std::vector<std::string>> overrides(configurations.size());
  const auto find = [&](const std::string& name, bool in_groups) {
    bool found = false;
    for (std::size_t i = 0; i < configurations.size(); ++i) {
      if (configurations[i].forwards() != in_groups) continue;
      const Source* const source = find_source(configurations[i], name);
      if (source == nullptr) continue;
      found = true;
      overrides[i].push_back(without(name));
      for (std::size_t slice = 0; in_groups && slice < configurations.size(); ++slice) {
        if (merges(configurations[slice], source->settings.id))
          overrides[slice].push_back(without(id_text(source->settings.id)));
      }
    }
    return found;
  };
  for (const std::string& name : names) {
    if (find(name, true) || find(name, false)) continue;
    std::vector<std::string> known;
    for (const Configuration& one : configurations) {
      if (one.forwards())
        std::ranges::copy(detail::names_of_sources(one), std::back_inserter(known));
    }
    return fail(ErrorKind::usage, "--without: " + detail::no_such_source(name, known));
  }
  return overrides;
}

Result<Stages> fit_stages(std::span<const Configuration> configurations) {
  settings::Problems problems;
  Stages stages = Fit(configurations, problems).find();
  if (problems.first) return std::unexpected(*problems.first);
  return stages;
}

} // namespace fanin::config
