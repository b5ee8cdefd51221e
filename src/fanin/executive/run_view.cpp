#include "fanin/executive/run_view.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/units.hpp"
#include "fanin/storage/inspect.hpp"
#include "fanin/storage/manifest.hpp"

namespace fanin::executive {
namespace {

constexpr std::array<std::string_view, 5> roles{"event_manager", "readout", "builder",
                                                "application", "filter"};

// The end of a node that was started again, with what its earlier starts had counted.
json::Value with_earlier(json::Value end, const json::Value& earlier) {
  for (const char* key :
       {"fragments_read", "bytes_sent", "fragments_stored", "events_stored", "bytes_stored"}) {
    if (earlier.find(key) != nullptr) end[key] = end.at(key).natural() + earlier.at(key).natural();
  }
  json::List files = earlier.at("files").list();
  for (const auto& file : end.at("files").list()) files.push_back(file);
  if (!files.empty()) end["files"] = std::move(files);
  return end;
}

// It stands for the failure if there was none before.
void add_failure(json::Value& result, std::string text) {
  result["ok"] = false;
  if (result.at("error").text().empty()) result["error"] = std::move(text);
}

void add_failed_source(json::Value& result, const std::string& node, const std::string& source,
                       std::string why) {
  add_failure(result, fmt::format("source {} of {} has failed: {}", source, node, why));
  result["failed_sources"][source] = std::move(why);
}

// Of a source that has said nothing since its readout unit was started last: it is required, and
// others gave events. One without any sender is missing in them, and that is all.
bool had_sender_for_nothing(const json::Value& result, const std::string& name) {
  const json::Value& source = result.at("sources").at(name);
  return source.at("required").boolean() && source.at("read").natural() == 0 &&
         source.at("counters").at("connections").natural() != 0 &&
         result.at("events").at("built").natural() != 0;
}

} // namespace

void RunView::on_report(const json::Value& report) {
  const std::string kind = report.at("report").text();
  if (kind == "progress") {
    earlier_ = std::move(progress_);
    progress_ = report;
    frozen_s_ = 0;
    begun_ = begun_ || report.at("state").text() != "waiting";
  } else if (kind == "result") {
    result_ = report;
  } else if (kind == "frozen") {
    frozen_s_ = report.at("seconds").natural();
  } else if (kind == "gone") {
    gone_files_[report.at("file").text()] = report.at("what").text();
  } else if (kind == "end") {
    const std::string node = report.at("node").text();
    ends_[node] = with_earlier(report, ends_[node]);
    ended_.insert(node);
    const auto index = configuration_.find_node(node);
    // A filter unit that failed is replaced, unless it is refused.
    const bool counts = !index || configuration_.nodes[*index].role != config::Role::filter ||
                        report.at("refused").boolean();
    if (counts && !has_result() && !report.at("ok").boolean()) failed_early_.insert(node);
    if (!report.at("started").boolean(true) && report.at("joined").boolean())
      ++could_not_join_[node];
  }
}

void RunView::on_exit(const std::string& process, const ChildExit& exit) {
  if (exit.status != 0 && !begun_ && !has_result()) died_early_[process] = exit.text();
  const auto of_node = std::ranges::find(configuration_.processes, process, &config::Process::name);
  for (const std::size_t index : of_node->nodes) {
    const std::string& node = configuration_.nodes[index].name;
    if (ended_.erase(node) == 0) ++died_[node];
  }
  const auto [known, is_new] = exits_.try_emplace(process, exit);
  if (is_new) return; // else it was started again
  known->second.status = exit.status;
  known->second.signal = exit.signal;
  known->second.peak_rss_bytes = std::max(known->second.peak_rss_bytes, exit.peak_rss_bytes);
  known->second.cpu_s += exit.cpu_s;
}

bool RunView::only_senders_missing() const {
  return begun_ || (progress_.at("readouts").natural() == configuration_.readouts() &&
                    progress_.at("builders").natural() == configuration_.builders());
}

std::string RunView::progress_line() const {
  if (progress_.is_null()) return {};
  const std::string state = progress_.at("state").text();
  const std::string waiting_for = progress_.at("waiting_for").text();
  if (state == "waiting") {
    if (frozen_s_ > 0)
      return fmt::format("waiting for {}, silent for {} s", configuration_.event_manager().name,
                         frozen_s_);
    return fmt::format("waiting{}{}", waiting_for.empty() ? "" : " for ", waiting_for);
  }
  const auto rate = [this](std::string_view key) {
    const double time = progress_.at("time_s").real() - earlier_.at("time_s").real();
    const double step = progress_.at(key).real() - earlier_.at(key).real();
    return time > 0 && step > 0 ? step / time : 0.0;
  };
  const json::Value& buffers = progress_.at("buffers");
  const double pages = std::max(buffers.at("pages").real(), 1.0);
  std::string line =
      fmt::format("{:6.1f} s  {:>9}  {:>9}  {} events  {} incomplete  {} open  buffers {:.0f} %",
                  progress_.at("time_s").real(), format_rate(rate("events")),
                  format_bandwidth(rate("bytes_built")), progress_.at("events").natural(),
                  progress_.at("incomplete").natural(), progress_.at("open").natural(),
                  100 * buffers.at("in_use").real() / pages);
  if (configuration_.has_filters())
    line += fmt::format("  {} rejected", progress_.at("rejected").natural());
  const std::uint64_t readouts = progress_.at("readouts").natural();
  const std::uint64_t builders = progress_.at("builders").natural();
  if (readouts < configuration_.readouts()) {
    line += fmt::format("  {}/{} RUs", readouts, configuration_.readouts());
  }
  if (builders < configuration_.builders()) {
    line += fmt::format("  {}/{} BUs", builders, configuration_.builders());
  }
  if (frozen_s_ > 0) {
    line += fmt::format("  waiting for {}, silent for {} s", configuration_.event_manager().name,
                        frozen_s_);
  } else if (state == "stopping") {
    line += waiting_for.empty() ? "  stopping" : "  stopping: " + waiting_for;
  } else if (progress_.at("open").natural() > 0 && rate("events") <= 0 && !waiting_for.empty()) {
    line += "  waiting for " + waiting_for;
  }
  return line;
}

json::Value RunView::result() const {
  json::Value result = has_result() ? result_ : sum_of_nodes();
  json::Value clean{json::Object{}};
  for (const auto& [key, value] : result.object()) {
    if (key != "report" && key != "node" && key != "waited_for") clean[key] = value;
  }
  clean["comment"] = configuration_.run.comment;
  clean["metadata"] = storage::metadata_json(configuration_.run.metadata);
  add_resources(clean);
  add_source_counters(clean);
  add_failures(clean);
  add_gone(clean);
  return clean;
}

json::Value RunView::nodes_result() const {
  json::Value result{json::Object{}};
  result["ok"] = true;
  result["error"] = "";
  add_ends(result);
  for (const auto& [name, end] : ends_) {
    if (!end.at("ok").boolean())
      add_failure(result, fmt::format("{}: {}", name, end.at("error").text()));
    for (const auto& [source, why] : end.at("failed_sources").object())
      add_failed_source(result, name, source, why.text());
  }
  for (const auto& [name, exit] : exits_) {
    if (exit.status != 0) add_failure(result, fmt::format("{}: {}", name, exit.text()));
  }
  add_gone(result);
  add_resources(result);
  return result;
}

void RunView::add_ends(json::Value& result) const {
  json::Value& nodes = result["nodes"] = json::Value{json::Object{}};
  json::Value files{json::List{}};
  for (const auto& [name, end] : ends_) {
    for (const auto& file : end.at("files").list()) files.append(file);
    json::Value& node = nodes[name];
    for (const auto& [key, value] : end.object()) {
      if (key != "report" && key != "node" && key != "ok") node[key] = value;
    }
  }
  result["files"] = files;
}

// Nodes that never came to the run, and sources that could not go on, or gave nothing: what was
// read before is built, but the run is not what was wanted.
void RunView::add_failures(json::Value& result) const {
  const auto failed = [&result](const std::string& who, const std::string& why) {
    add_failure(result, fmt::format("{}: {}", who, why));
  };
  for (const std::string& node : failed_early_) {
    const json::Value& end = ends_.at(node);
    // Of a run that has begun, what a node has read or built counts, and the others went on.
    const auto unable = could_not_join_.find(node);
    const std::uint64_t starts = result.at("nodes").at(node).at("starts").natural();
    const bool joined = begun_ && starts > (unable == could_not_join_.end() ? 0 : unable->second);
    if (!joined && !end.at("ok").boolean()) failed(node, end.at("error").text());
  }
  if (!begun_) { // else all were there: who had died before was started again
    for (const auto& [process, how] : died_early_) failed(process, how);
  }
  for (const auto& [node, end] : ends_) {
    for (const auto& [source, why] : end.at("failed_sources").object())
      add_failed_source(result, node, source, why.text());
    for (const auto& source : end.at("said_nothing").list()) {
      if (had_sender_for_nothing(result, source.text()))
        add_failed_source(result, node, source.text(),
                          "its sender was connected, and sent nothing in the whole run");
    }
  }
  if (const std::string wanted = result_.at("waited_for").text(); !wanted.empty())
    add_failure(result, "the run never began: it waited for " + wanted);
}

// What was written there is lost, or somebody else has it now.
void RunView::add_gone(json::Value& result) const {
  for (const auto& [file, what] : gone_files_) {
    result["gone_files"][file] = what;
    add_failure(result, fmt::format("{}, {}, was removed, renamed, replaced or cut during the run",
                                    file, what));
  }
}

void RunView::add_source_counters(json::Value& result) const {
  for (const auto& [node, end] : ends_) {
    for (const auto& [source, counters] : end.at("source_counters").object()) {
      result["sources"][source]["counters"] = counters;
    }
  }
}

// Memory and processor time of each process, at each of its nodes.
void RunView::add_resources(json::Value& result) const {
  json::Value& nodes = result["nodes"];
  for (const config::Process& process : configuration_.processes) {
    std::uint64_t pool_bytes = 0;
    for (const std::size_t index : process.nodes) {
      pool_bytes += plans_[index].pools();
    }
    for (const std::size_t index : process.nodes) {
      const std::string& name = configuration_.nodes[index].name;
      const auto exit = exits_.find(process.name);
      const auto end = ends_.find(name);
      if (exit == exits_.end() && end == ends_.end()) continue; // on another host
      json::Value& node = nodes[name];
      node["role"] = roles[static_cast<std::size_t>(configuration_.nodes[index].role)];
      node["process"] = process.name;
      node["pool_bytes"] = pool_bytes;
      if (exit != exits_.end()) {
        node["peak_rss_bytes"] = exit->second.peak_rss_bytes;
        node["cpu_s"] = exit->second.cpu_s;
        if (exit->second.signal != 0 && end == ends_.end()) node["exit"] = exit->second.text();
      } else {
        node["peak_rss_bytes"] = end->second.at("peak_rss_bytes");
        node["cpu_s"] = end->second.at("cpu_s");
      }
      if (const auto died = died_.find(name); died != died_.end()) node["died"] = died->second;
      for (const char* key : {"events_decided", "events_accepted", "bytes_seen", "events_published",
                              "events_skipped"}) {
        if (end != ends_.end() && end->second.find(key) != nullptr) node[key] = end->second.at(key);
      }
      if (end != ends_.end() && !end->second.at("ok").boolean(true))
        node["error"] = end->second.at("error");
    }
  }
}

// The event manager is dead: what was announced and not cleared, nobody knows. What the readout
// units read and the builder units stored is known, though an event may be stored twice. Of a node
// that had died before, or is on another host, it is not: then nobody knows what is lost.
json::Value RunView::sum_of_nodes() const {
  std::uint64_t read = 0;
  std::uint64_t built = 0;
  std::uint64_t events = 0;
  std::uint64_t bytes = 0;
  for (const auto& [name, end] : ends_) {
    read += end.at("fragments_read").natural();
    built += end.at("fragments_stored").natural();
    events += end.at("events_stored").natural();
    bytes += end.at("bytes_stored").natural();
  }
  json::Value result;
  result["run"] = progress_.at("run").natural();
  result["duration_s"] = progress_.at("time_s").real();
  result["events"]["built"] = events;
  result["fragments"]["read"] = read;
  result["fragments"]["built"] = built;
  result["bytes_built"] = bytes;
  const double time = std::max(progress_.at("time_s").real(), 1e-9);
  result["event_rate_hz"] = static_cast<double>(events) / time;
  result["throughput_bytes_per_s"] = static_cast<double>(bytes) / time;
  result["balanced"] = false;
  result["ledger"] = false; // it died with the event manager
  result["ok"] = false;
  const std::string missing = add_not_summed(result);
  if (missing.empty()) {
    result["events"]["incomplete"] = progress_.at("incomplete").natural();
    result["fragments"]["late"] = 0;
    result["fragments"]["dropped"] = 0;
    result["fragments"]["lost"] = read - std::min(read, built);
  }
  const auto manager = ends_.find(configuration_.event_manager().name);
  const std::string why = manager == ends_.end() ? "" : manager->second.at("error").text();
  constexpr std::string_view sums = "these are the sums of what the nodes themselves counted";
  result["error"] = !why.empty() ? why
                    : frozen_s_ > 0
                        ? fmt::format("the event manager reported nothing for {} s: {}{}",
                                      frozen_s_, sums, missing)
                        : fmt::format("the event manager died: {}{}", sums, missing);
  add_ends(result);
  add_manifest(result);
  return result;
}

// Those who died have files, too: all of the run are beside its manifest.
void RunView::add_manifest(json::Value& result) const {
  const std::string manifest = progress_.at("manifest").text();
  if (manifest.empty()) return;
  result["manifest"] = manifest;
  std::set<std::string> files;
  for (const auto& file : result.at("files").list()) files.insert(file.text());
  const auto run = static_cast<RunNumber>(progress_.at("run").natural());
  for (auto& file : storage::run_files_beside(manifest, run)) files.insert(std::move(file));
  result["files"] = json::List(files.begin(), files.end());
}

// Nodes whose counts are missing: those of other hosts say there what they have counted; those that
// died did not. Returns what people are told of it; empty: none is missing.
std::string RunView::add_not_summed(json::Value& result) const {
  json::List names;
  std::vector<std::string> elsewhere;
  std::vector<std::string> died;
  for (const config::Process& process : configuration_.processes) {
    for (const std::size_t index : process.nodes) {
      const config::Node& node = configuration_.nodes[index];
      if (node.role != config::Role::readout && node.role != config::Role::builder) continue;
      if (died_.contains(node.name)) {
        died.push_back(node.name);
      } else if (exits_.contains(process.name) || ends_.contains(node.name)) {
        continue;
      } else {
        elsewhere.push_back(node.name);
      }
      names.push_back(node.name);
    }
  }
  result["not_summed"] = std::move(names);
  std::string text;
  if (!died.empty())
    text += fmt::format("; without {}, which died as well", fmt::join(died, " and "));
  if (!elsewhere.empty()) text += fmt::format("; without those of {}", fmt::join(elsewhere, ", "));
  return text;
}

bool succeeded(const json::Value& result) {
  return result.at("balanced").boolean() && result.at("ok").boolean();
}

} // namespace fanin::executive
