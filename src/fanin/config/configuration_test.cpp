#include "fanin/config/configuration.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

namespace fanin::config {
namespace {

using ::testing::ElementsAre;

// The shortest configuration that works; what a test says comes after it.
constexpr const char* minimal = R"([[readout]]
source = [{ id = 7, type = "emulator" }]
[[builder]]
)";

Configuration good(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto result = parse(text, "folder/run.toml", overrides);
  if (!result) ADD_FAILURE() << result.error().text;
  return result.value_or(Configuration{});
}

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto result = parse(text, "run.toml", overrides);
  if (result) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::usage);
  EXPECT_EQ(result.error().text.find('\n'), std::string::npos) << result.error().text;
  return result.error().text;
}

TEST(Configuration, the_shortest_one_has_an_event_manager_a_readout_and_a_builder_unit) {
  const Configuration c = good(minimal);
  EXPECT_EQ(c.node_names(), "evm, ru0, bu0");
  EXPECT_EQ(c.event_manager().urls.front().text(), "tcp://127.0.0.1");
  ASSERT_EQ(c.sources.size(), 1U);
  EXPECT_EQ(c.sources[0].settings.id, 7U);
  EXPECT_EQ(c.sources[0].settings.name, "0x7");
  ASSERT_EQ(c.processes.size(), 3U);
  EXPECT_EQ(c.processes[0].name, "evm");
  EXPECT_EQ(c.run.output, "fanin-data");
  EXPECT_FALSE(c.run.number.has_value());
}

TEST(Configuration, a_leading_tilde_is_the_home_folder) {
  ASSERT_EQ(::setenv("HOME", "/home/ana", 1), 0);
  const auto read =
      parse("[run]\noutput = \"~/data\"\n[[plugin]]\npath = \"~/own.so\"\n[[builder]]\n"
            "[[readout]]\nsource = [{id = 1, type = \"hld\", path = \"~/a.hld\"}]\n",
            "/etc/run.toml");
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->run.output, "/home/ana/data");
  EXPECT_THAT(read->plugins, ElementsAre("/home/ana/own.so"));
  EXPECT_EQ(read->sources[0].settings.values.at("path").value, "/home/ana/a.hld");
}

TEST(Configuration, a_run_may_have_a_comment_and_keys_of_its_own) {
  const std::string nodes = "[[builder]]\n[[readout]]\nsource = [{id = 1, type = \"emulator\"}]\n";
  const auto read =
      parse(nodes + "[run.metadata]\nbeam = \"150 GeV\"\nhv = true\n\"t (C)\" = 21.0\n", "run.toml",
            {"run.comment=test", "run.metadata.shift=-4"});
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->run.comment, "test");
  std::map<std::string, decltype(storage::Metadata::value)> keys;
  for (const auto& [key, value] : read->run.metadata) keys[key] = value;
  const std::map<std::string, decltype(storage::Metadata::value)> expected{
      {"beam", std::string("150 GeV")}, {"hv", true}, {"t (C)", 21.0}, {"shift", std::int64_t{-4}}};
  EXPECT_EQ(keys, expected);
  for (const auto& [text, why] :
       {std::pair{"[run.metadata]\nx = [1]\n",
                  "run.toml:5: run.metadata.x: is not a text, a number, true or "
                  "false"},
        {"[run]\nmetadata = 1\n", "run.toml:5: run.metadata: "}}) {
    const auto wrong = parse(nodes + text, "run.toml");
    ASSERT_FALSE(wrong) << text;
    EXPECT_TRUE(wrong.error().text.starts_with(why)) << wrong.error().text;
  }
  EXPECT_FALSE(parse(nodes, "run.toml", {"run.comment=" + std::string(40'000, 'x')}));
}

TEST(Configuration, a_run_may_be_recorded_in_a_registry_as_of_a_kind) {
  EXPECT_EQ(good(minimal).run.kind, "physics");
  EXPECT_EQ(good(minimal).run.registry, "");
  const std::string nodes = "[[builder]]\n[[readout]]\nsource = [{id = 1, type = \"emulator\"}]\n";
  const auto read = parse(nodes, "run.toml", {"run.registry=/data/runs.sqlite", "run.kind=test"});
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->run.registry, "/data/runs.sqlite");
  EXPECT_EQ(read->run.kind, "test");
  EXPECT_FALSE(parse(nodes, "run.toml", {"run.kind=cosmics"}));
  EXPECT_FALSE(parse(nodes, "run.toml", {"run.registry=\"\""}));
}

TEST(Configuration, the_quickstart_example_is_five_processes) {
  const auto c = load(std::string(FANIN_SOURCE_DIR) + "/examples/quickstart.toml", {});
  ASSERT_TRUE(c) << c.error().text;
  EXPECT_EQ(c->processes.size(), 5U);
  EXPECT_EQ(c->run.duration, std::chrono::seconds{10});
  EXPECT_DOUBLE_EQ(c->system.trigger_rate_hz, 20'000);
  ASSERT_EQ(c->sources.size(), 4U);
  EXPECT_EQ(c->sources[2].settings.id, 0x102U);
  EXPECT_EQ(c->sources[2].readout, 1U);
  EXPECT_EQ(c->sources[2].settings.values.at("size_mean").value, "1200B");
}

TEST(Configuration, ids_run_on_over_several_sources_and_readout_units) {
  const Configuration c = good(R"(
[[readout]]
count = 2
[[readout.source]]
id = 16
count = 2
type = "emulator"
[[readout]]
name = "muon"
[[readout.source]]
type = "emulator"
name = "chamber"
count = 3
[[builder]]
)");
  std::vector<std::string> found;
  for (const auto& s : c.sources)
    found.push_back(fmt::format("{}/{}/{}", s.readout, s.settings.id, s.settings.name));
  EXPECT_THAT(found, ElementsAre("0/16/0x10", "0/17/0x11", "1/18/0x12", "1/19/0x13",
                                 "2/20/chamber0", "2/21/chamber1", "2/22/chamber2"));
  EXPECT_EQ(c.node_names(), "evm, ru0, ru1, muon, bu0");
}

TEST(Configuration, the_source_section_gives_defaults_for_all_sources) {
  const Configuration c = good(R"(
[source]
type = "hld"
path = "data/file.hld"
required = false
[[readout]]
source = [{ id = 1 }, { id = 2, required = true, path = "/absolute" }]
[[builder]]
)");
  ASSERT_EQ(c.sources.size(), 2U);
  EXPECT_EQ(c.sources[0].settings.values.at("path").value, "folder/data/file.hld");
  EXPECT_FALSE(c.sources[0].required);
  EXPECT_EQ(c.sources[1].settings.values.at("path").value, "/absolute");
  EXPECT_TRUE(c.sources[1].required);
}

TEST(Configuration, inproc_puts_all_nodes_into_one_process) {
  const Configuration c = good(minimal, {"network.url=inproc://", "builder.0.count=2"});
  ASSERT_EQ(c.processes.size(), 1U);
  EXPECT_EQ(c.processes[0].nodes.size(), 4U);
  EXPECT_EQ(c.nodes[0].urls.front().text(), "inproc://evm");
  EXPECT_EQ(c.nodes[2].urls.front().text(), "inproc://bu0");
  EXPECT_EQ(c.nodes[3].urls.front().text(), "inproc://bu1");
  const Configuration decorated = good(minimal, {"network.url=fault+inproc://?delay=1ms"});
  ASSERT_EQ(decorated.processes.size(), 1U);
  EXPECT_EQ(decorated.nodes[0].urls.front().text(), "fault+inproc://evm?delay=1ms");
}

TEST(Configuration, nodes_listen_on_their_own_hosts) {
  const Configuration c = good(R"(
[network]
control = "tcp://:7000"
data = "tcp"
[event_manager]
host = "daq-evm"
[[readout]]
host = "daq-ru"
source = [{ type = "emulator" }]
[[builder]]
host = "daq-bu"
[[builder]]
host = "fe80::1"
url = "tcp://[fd00::2]:7100"
)");
  EXPECT_EQ(c.nodes[0].urls.front().text(), "tcp://daq-evm:7000");
  EXPECT_EQ(c.nodes[2].urls.front().text(), "tcp://daq-bu");
  EXPECT_EQ(c.nodes[3].urls.front().text(), "tcp://[fd00::2]:7100");
}

TEST(Configuration, a_builder_unit_may_listen_on_several_rails) {
  const Configuration c = good(R"(
[network]
control = "tcp://:7000"
[event_manager]
host = "daq"
[[readout]]
host = "daq"
source = [{ type = "emulator" }]
[[builder]]
host = "daq"
count = 2
url = ["verbs://10.9.0.1", "tcp://"]
)");
  for (const std::size_t node : {2U, 3U}) {
    ASSERT_EQ(c.nodes[node].urls.size(), 2U);
    EXPECT_EQ(c.nodes[node].urls[0].text(), "verbs://10.9.0.1");
    EXPECT_EQ(c.nodes[node].urls[1].text(), "tcp://daq");
  }
  const std::string builder =
      "[[readout]]\nsource = [{ type = \"emulator\" }]\n[[builder]]\nurl = ";
  EXPECT_EQ(error_of(builder + "[\"tcp://a:1\", \"tcp://a:1\"]\n"),
            "run.toml:4: builder.0.url: \"bu0\" and \"bu0\" would both listen on tcp://a:1; leave "
            "the port out and each finds a free one");
  EXPECT_EQ(error_of(builder + "[\"tcp://a:1\", 7]\n"),
            "run.toml:4: builder.0.url: holds a whole number; a list of texts is wanted");
  EXPECT_EQ(error_of(builder + "[]\n"),
            "run.toml:4: builder.0.url: is an empty list: write at least one, or leave the key "
            "out");
  EXPECT_EQ(error_of(builder + "[\"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\"]\n"),
            "run.toml:4: builder.0.url: names more than 8 addresses");
}

TEST(Configuration, processes_hold_the_nodes_that_they_name) {
  const Configuration c = good(std::string(minimal) + "[[process]]\nname = \"core\"\n"
                                                      "nodes = [\"bu0\", \"evm\"]\n");
  ASSERT_EQ(c.processes.size(), 2U);
  EXPECT_EQ(c.processes[0].name, "core");
  EXPECT_THAT(c.processes[0].nodes, ElementsAre(0U, 2U));
  EXPECT_EQ(c.processes[1].name, "ru0");
}

TEST(Configuration, cpus_are_shared_evenly_by_nodes_that_are_alike) {
  const Configuration c = good("[[readout]]\ncount = 2\ncpu = \"4-7\"\n"
                               "source = [{ type = \"emulator\" }]\n[[builder]]\ncpu = [1, 0]\n");
  EXPECT_THAT(c.nodes[1].cpus, ElementsAre(4, 5));
  EXPECT_THAT(c.nodes[2].cpus, ElementsAre(6, 7));
  EXPECT_THAT(c.nodes[3].cpus, ElementsAre(0, 1));
}

TEST(Configuration, overrides_reach_into_lists_and_all_of_a_list) {
  const Configuration c =
      good("[[readout]]\ncount = 2\nsource = [{ type = \"emulator\" }]\n[[builder]]\n",
           {"readout.0.name=left", "readout.*.source.*.size=64KiB", "run.duration=5s",
            "run.number=4294967295", "storage.commit=synced"});
  EXPECT_EQ(c.node_names(), "evm, left0, left1, bu0");
  EXPECT_EQ(c.sources[1].settings.values.at("size").value, "64KiB");
  EXPECT_EQ(c.sources[1].settings.values.at("size").place.text(), "--set:2");
  EXPECT_EQ(c.run.duration, std::chrono::seconds{5});
  EXPECT_EQ(c.run.number, run_number_max);
  EXPECT_EQ(c.storage.file.commit, storage::CommitMode::synced);
}

TEST(Configuration, a_misspelled_section_is_named_before_what_is_missing_without_it) {
  EXPECT_EQ(error_of("[[readot]]\nsource = [{ type = \"emulator\" }]\n[[builder]]\n[[process]]\n"
                     "nodes = [\"ru0\", \"bu0\"]\n"),
            "run.toml:1: readot: unknown key; did you mean readout?");
  EXPECT_EQ(error_of("[evet]\nbatch_events = 64\n[slice]\nblock = 64\n" + std::string(minimal)),
            "run.toml:1: evet: unknown key; did you mean event?");
  const std::string slice = "[slice]\nurls = [\"tcp://a:1\"]\nsource = 1\n";
  EXPECT_EQ(error_of(slice + minimal),
            "run.toml:2: slice.urls: counts only with storage.sink = \"forward\"");
  EXPECT_EQ(error_of(slice + "[storage]\nsnk = \"forward\"\n" + minimal),
            "run.toml:5: storage.snk: unknown key; did you mean sink?");
}

struct Wrong {
  std::string text;
  std::string error;
};

TEST(Configuration, what_is_wrong_is_said_in_one_line_with_file_line_key_and_reason) {
  const std::string m = minimal; // three lines
  const std::vector<Wrong> wrong{
      {m + "[trigger]\nrate = 20\n",
       "run.toml:5: trigger.rate: \"20\" has no unit; the units are Hz, kHz, MHz, GHz, as in "
       "\"20kHz\""},
      {m + "[trigger]\nrte = \"20kHz\"\n",
       "run.toml:5: trigger.rte: unknown key; did you mean rate?"},
      {m + "[trigger]\nfrequency = \"20kHz\"\n",
       "run.toml:5: trigger.frequency: unknown key; known here: rate, window"},
      {m + "[trigger]\nwindow = 20\n",
       "run.toml:4: trigger.rate: is missing; without a trigger leave the section out"},
      {m + "[[plugin]]\npaht = \"a.so\"\n",
       "run.toml:5: plugin.0.paht: unknown key; did you mean path?"},
      {"[[readout]]\nsource = [{ tpye = \"emulator\" }]\n[[builder]]\n",
       "run.toml:2: readout.0.source.0.tpye: unknown key; did you mean type?"},
      {m + "[[filter]]\ntyp = \"threshold\"\n",
       "run.toml:5: filter.0.typ: unknown key; did you mean type?"},
      {m + "[storage]\nsink = \"forward\"\n[slice]\nsource = 1\n"
           "urls = [\"tcp://a:1\", \"tcp://b:1\", \"tcp://a:1\"]\n",
       "run.toml:8: slice.urls: tcp://a:1 is listed twice; each slice has an address of its own"},
      {m + "[storage]\nsink = \"forward\"\n[slice]\nsource = 1\nurls = [\"tcp://:1\"]\n",
       "run.toml:8: slice.urls: tcp://:1 names no host: write the one where the slice listens"},
      {m + "[storage]\nsink = \"forward\"\n[slice]\nsource = 1\nurls = [\"tcp://0.0.0.0:1\"]\n",
       "run.toml:8: slice.urls: tcp://0.0.0.0:1 names no host: write the one where the slice "
       "listens"},
      {m + "[storage]\nsink = \"forward\"\n[slice]\nsource = 1\nurls = [\"tcp://0:1\"]\n",
       "run.toml:8: slice.urls: tcp://0:1 names no host: write the one where the slice listens"},
      {m + "[storage]\nsink = \"forward\"\n[slice]\nsource = 1\nurls = "
           "[\"tcp://[::ffff:0.0.0.0]:1\"]\n",
       "run.toml:8: slice.urls: tcp://[::ffff:0.0.0.0]:1 names no host: write the one where the "
       "slice listens"},
      {m + "[run]\nduratoin = \"1s\"\n",
       "run.toml:5: run.duratoin: unknown key; did you mean duration?"},
      {m + "[run]\nzzzzzzzz = 1\n", "run.toml:5: run.zzzzzzzz: unknown key; known here: comment, "
                                    "drain, duration, events, kind, metadata, number, output, "
                                    "registry, restart, seed, without"},
      {m + "[storge]\nmax_file = \"1GiB\"\n",
       "run.toml:4: storge: unknown key; did you mean storage?"},
      {m + "[run]\nduration = 10\n",
       "run.toml:5: run.duration: \"10\" has no unit; the units are ns, us, ms, s, min, h, as in "
       "\"50ms\""},
      {m + "[run]\nevents = \"\"\n",
       "run.toml:5: run.events: \"\" is not a whole number from 1 to 9223372036854775807"},
      {m + "[run]\nevents = 0\n",
       "run.toml:5: run.events: 0 is not a whole number from 1 to 9223372036854775807"},
      {m + "[run]\nrestart = \"yes\"\n",
       "run.toml:5: run.restart: \"yes\" is neither true nor false"},
      {m + "[run]\noutput = [1]\n", "run.toml:5: run.output: is a list; a text is wanted"},
      {m + "[run]\noutput = \"a\\nb\"\n",
       "run.toml:5: run.output: has a line break in it; name a folder without one"},
      {m + "[network]\ngrace = \"5s\"\n",
       "run.toml:5: network.grace: must be shorter than network.dead_after: a node that was given "
       "up cannot resume"},
      {m + "[network]\ndead_after = \"20s\"\ngive_up_after = \"20s\"\n",
       "run.toml:6: network.give_up_after: must be longer than network.dead_after: until then an "
       "earlier process may still have the node's name"},
      {m + "[network]\nprotocol = \"shove\"\n",
       "run.toml:5: network.protocol: \"shove\" is none of \"push\", \"pull\""},
      {m + "[network]\nurl = \"tcp://::1:7000\"\n",
       "run.toml:5: network.url: address \"tcp://::1:7000\": an IPv6 host stands in brackets, as "
       "in "
       "tcp://[::1]:7000"},
      {m + "[network]\nurl = \"tcp://0.0.0.0\"\n",
       "run.toml:5: network.url: \"evm\" would tell others to connect to tcp://0.0.0.0: write an "
       "address or a "
       "name of its host"},
      {m + "[event]\nbatch_events = 1000\n",
       "run.toml:5: event.batch_events: 1000 is not a power of two, as 1024 is"},
      {m + "[event]\ndeadline = \"20ms\"\nlatency = \"20ms\"\n",
       "run.toml:6: event.latency: must be shorter than event.deadline, after which a source is "
       "given up"},
      {m + "[event]\nintegrity = \"crc64\"\n",
       "run.toml:5: event.integrity: \"crc64\" is none of \"crc32c\", \"none\""},
      {m + "[buffers]\npage = \"100KiB\"\n",
       "run.toml:5: buffers.page: 100 KiB is not a power of two from 64KiB to 64MiB"},
      {m + "[buffers]\npage = \"64KiB\"\n[event]\nbatch_events = 4096\n",
       "run.toml:5: buffers.page: 64 KiB is too small for batches of 4096 events: take 256KiB or "
       "event.batch_events = 1024"},
      {m + "[storage]\nmax_file = \"-1GiB\"\n",
       "run.toml:5: storage.max_file: \"-1GiB\" is negative; a size is at least 0"},
      {m + "[[builder]]\nname = \"ru0\"\n",
       "run.toml:5: builder.1.name: two nodes are named \"ru0\""},
      {m + "[[builder]]\nname = \"a/b\"\n",
       "run.toml:5: builder.1.name: \"a/b\" cannot be a node's name: it becomes a part of file "
       "names, so letters, "
       "digits, '_', '-' and '.', at most 64"},
      {m + "cpu = \"a\"\n",
       "run.toml:4: builder.0.cpu: \"a\" names no CPUs; write 3, \"0-3,8\" or [0, 1]"},
      {m + "count = 2\ncpu = 1\n",
       "run.toml:5: builder.0.cpu: 1 CPU cannot be shared evenly by 2 nodes"},
      {m + "[[process]]\nnodes = [\"evm\", \"bu1\"]\n",
       "run.toml:5: process.0.nodes: there is no node \"bu1\"; there are: evm, ru0, bu0"},
      {m + "[[process]]\nnodes = [\"evm\"]\n[network]\nurl = \"inproc://\"\n",
       "run.toml:7: network.url: inproc://evm reaches only within one process, but there are 3: "
       "put all nodes "
       "into one [[process]], or leave [[process]] out"},
      {m + "host = \"b\"\n", "run.toml:1: event_manager.host: is missing for \"evm\": where some "
                             "nodes have a host, all need one"},
      {m + "[[plugin]]\n", "run.toml:4: plugin.0.path: is missing: the shared object to load"},
      {"[[readout]]\n[[builder]]\n",
       "run.toml:1: readout.0.source: readout unit \"ru0\" has none: add [[readout.source]]"},
      {"[[readout]]\nsource = [{ id = 1 }]\n[[builder]]\n",
       "run.toml:2: readout.0.source.0.type: is missing, as in type = \"emulator\""},
      {"[[readout]]\nsource = [{ id = 1, type = \"e\" }, { id = 1, type = \"e\" }]\n[[builder]]\n",
       "run.toml:2: readout.0.source.1.id: two sources have the id 1 (0x1); the other one is "
       "readout.0.source.0 at run.toml:2"},
      {"[[readout]]\nsource = [{ type = \"e\", name = \"0x1\" }]\n[[readout]]\n"
       "source = [{ type = \"e\" }]\n[[builder]]\n",
       "run.toml:4: readout.1.source.0.name: two sources have the name \"0x1\"; the other one is "
       "readout.0.source.0 at run.toml:2"},
      {"[run]\nnumber = 4294967296\n",
       "run.toml:2: run.number: 4294967296 is not a whole number from 1 to 4294967295"},
      {"[[readout]]\nsource = [{ id = -1, type = \"e\" }]\n[[builder]]\n",
       "run.toml:2: readout.0.source.0.id: -1 is not a whole number from 0 to 4294967295"},
      {"[[builder]]\n",
       "run.toml:1: readout: is missing: add a [[readout]] with a [[readout.source]]"},
      {"[readout\n", ""},
      {"a = 1\na = 2\n", ""},
  };
  for (const auto& [text, error] : wrong) {
    const std::string found = error_of(text);
    if (error.empty()) { // of toml++; its wording is not ours
      EXPECT_THAT(found, ::testing::MatchesRegex("run.toml:[0-9]+: not valid TOML: .+")) << text;
    } else {
      EXPECT_EQ(found, error) << text;
    }
  }
}

TEST(Configuration, a_line_that_is_no_toml_is_explained_where_that_is_easy) {
  const auto error = [](const std::string& line) {
    return error_of("[trigger]\n" + line + "\n[run]\nseed = 1 # \"\n");
  };
  const std::string open =
      "run.toml:2: not valid TOML: a quotation mark in this line has no counterpart";
  EXPECT_EQ(error("rate = \"1kHz"), open);
  EXPECT_EQ(error("rate = 1kHz\""), open);
  EXPECT_EQ(error("rate = '1kHz"), open);
  EXPECT_EQ(error("rate = \"\"\"1kHz"), open);
  EXPECT_THAT(error("rate = 1kHz # fast"),
              ::testing::MatchesRegex("run.toml:2: not valid TOML: .*; a text stands in quotation "
                                      "marks: rate = \"1kHz\""));
  EXPECT_THAT(error("rate = fast"), ::testing::EndsWith("quotation marks: rate = \"fast\""));
  EXPECT_THAT(error("rate = True"), ::testing::EndsWith("; write rate = true"));
  EXPECT_THAT(error("rate = \u201c1kHz\u201d"),
              ::testing::EndsWith("; write straight quotation marks (\")"));
  EXPECT_THAT(
      error_of("[builder]\n[[builder]]\n"),
      ::testing::EndsWith("; a section is written once as [NAME], or each time as [[NAME]]"));
  EXPECT_THAT(
      error_of("[[builder]]\n[builder]\n"),
      ::testing::EndsWith("; a section is written once as [NAME], or each time as [[NAME]]"));
  EXPECT_THAT(error("rate = [1 2]"), ::testing::Not(::testing::HasSubstr("quotation")));
}

// The system would read the names of files and hosts only up to there.
TEST(Configuration, a_text_with_a_nul_character_is_refused_wherever_it_stands) {
  const std::string m = minimal;
  const std::string reason =
      ": holds a NUL character (\\u0000), which no name can have: leave it out";
  const std::vector<std::pair<std::string, std::string>> texts{
      {m + "[run]\noutput = \"\\u0000a\"\n", "run.toml:5: run.output"},
      {m + "[[plugin]]\npath = \"a\\u0000.so\"\n", "run.toml:5: plugin.0.path"},
      {m + "host = \"a\\u0000\"\n", "run.toml:4: builder.0.host"},
      {m + "name = \"a\\u0000\"\n", "run.toml:4: builder.0.name"},
      {m + "url = [\"tcp://a\", \"tcp://b\\u0000\"]\n", "run.toml:4: builder.0.url"},
      {m + "[network]\nurl = \"tcp://?a=\\u0000\"\n", "run.toml:5: network.url"},
      {"[[readout]]\nsource = [{ type = \"hld\", path = \"x\\u0000\" }]\n[[builder]]\n",
       "run.toml:2: readout.0.source.0.path"},
  };
  for (const auto& [text, where] : texts) EXPECT_EQ(error_of(text), where + reason);
}

TEST(Configuration, keys_that_lead_too_deep_are_refused_before_they_are_followed) {
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += i % 2 == 0 ? " . 'a'" : ".a";
  const std::string reason = ":2: a dotted key has more than 16 parts";
  EXPECT_EQ(error_of("# ...................................\n" + deep + " = 1\n"),
            "run.toml" + reason);
  EXPECT_EQ(error_of("x = '''\na''''\n[" + deep + "]\n"), "run.toml:3" + reason.substr(2));
  EXPECT_EQ(error_of("x = \"\\\"\"\ny = [{" + deep + " = 1}]\n"), "run.toml" + reason);
  EXPECT_EQ(error_of("x = \"not closed\n" + deep + " = 1\n"), "run.toml" + reason);
  EXPECT_THAT(error_of("", {deep + "=1"}),
              ::testing::HasSubstr("--set:1: the key has more than 16 parts"));
  EXPECT_THAT(error_of("", {"run.x={" + deep + "=1}"}), ::testing::HasSubstr("run.x: unknown key"));
  std::string nested = "1";
  for (int i = 0; i < 40; ++i) nested = "[{a.b.c.d.e.f.g.h.i.j.k = " + nested + "}]";
  EXPECT_THAT(error_of("x = " + nested + "\n"), ::testing::HasSubstr("maximum nested value depth"));
}

TEST(Configuration, dots_that_are_in_no_key_do_not_count) {
  const std::string dots(100, '.');
  const std::string text = "x = \"" + dots + "\" # " + dots +
                           "\ny = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, "
                           "1.8, 1.9, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5]\nz = \"\"\"\n" +
                           dots + "\\\"\n\"\"\"\n";
  EXPECT_THAT(error_of(text), ::testing::HasSubstr("unknown key"));
}

TEST(Configuration, what_follows_from_the_time_until_a_node_is_dead_needs_no_key) {
  const auto quick = good(std::string{minimal} + "[network]\ndead_after = \"600ms\"\n");
  EXPECT_EQ(quick.system.grace, std::chrono::milliseconds{300});
  EXPECT_EQ(quick.network.give_up_after, std::chrono::seconds{10});
  const auto slow = good(std::string{minimal} + "[network]\ndead_after = \"1min\"\n");
  EXPECT_EQ(slow.system.grace, std::chrono::seconds{1});
  EXPECT_EQ(slow.network.give_up_after, std::chrono::minutes{2});
}

TEST(Configuration, wrong_overrides_are_said_in_one_line) {
  const std::vector<Wrong> wrong{
      {"run.duration",
       "--set:1: \"run.duration\" is not of the form key=value, as in run.duration=5s"},
      {"run.durations=5s", "--set:1: run.durations: unknown key; did you mean duration?"},
      {"run.duration=5",
       "--set:1: run.duration: \"5\" has no unit; the units are ns, us, ms, s, min, "
       "h, as in \"50ms\""},
      {"readout.3.name=x",
       "--set:1: readout.3.name: the list has 1 entry: \"3\" should be an index "
       "from 0, or * for all of them"},
      {"readout.0+=1", "--set:1: readout.0: is a table: += adds to a list"},
      {"+=1", "--set:1: \"+=1\" is not of the form key=value, as in run.duration=5s"},
      {"run..number=1", "--set:1: run..number: a part of the key is empty; write it as in "
                        "readout.0.name=left"},
      {"readout.0.source.0.type.x=1",
       "--set:1: readout.0.source.0.type.x: there is nothing within a "
       "text, so \"x\" leads nowhere"},
  };
  for (const auto& [assignment, error] : wrong) EXPECT_EQ(error_of(minimal, {assignment}), error);
}

TEST(Configuration, an_override_may_add_to_a_list) {
  const std::string m = minimal;
  const auto without = [&](const std::string& text, const std::vector<std::string>& overrides) {
    const std::string more = "[[readout]]\nsource = [{ id = 8, count = 4, name = \"adc\", type = "
                             "\"emulator\" }]\n";
    return good(m + more + text, overrides).run.without;
  };
  EXPECT_THAT(without("", {"run.without+=adc1"}), ElementsAre("adc1"));
  EXPECT_THAT(without("[run]\nwithout = [\"adc0\"]\n", {"run.without+=adc1", "run.without+=[7]"}),
              ElementsAre("adc0", "adc1", "7"));
  EXPECT_THAT(without("[run]\nwithout = \"adc0\"\n", {R"(run.without+=["adc1", "adc2"])"}),
              ElementsAre("adc0", "adc1", "adc2"));
  EXPECT_THAT(without("[run]\nwithout = [\"adc0\"]\n", {"run.without=adc1"}), ElementsAre("adc1"));
  EXPECT_EQ(good(m, {"readout+={source=[{id=9,type=\"emulator\"}]}"}).node_names(),
            "evm, ru0, ru1, bu0");
}

// The key that shows it may be right in the file.
TEST(Configuration, an_override_that_makes_a_configuration_wrong_is_named) {
  const std::string m = minimal;
  EXPECT_EQ(error_of(m + "[event]\nlatency = \"20ms\"\n", {"event.deadline=10ms"}),
            "--set:1: event.latency: must be shorter than event.deadline, after which a source is "
            "given up");
  EXPECT_EQ(
      error_of(m, {"run.seed=3", "builder.0.host=b"}),
      "--set:2: event_manager.host: is missing for \"evm\": where some nodes have a host, all "
      "need one");
  EXPECT_EQ(error_of(m, {"builder.0.name=ru0"}),
            "--set:1: builder.0.name: two nodes are named \"ru0\"");
  EXPECT_EQ(error_of(m + "[[process]]\nnodes = [\"evm\"]\n", {"network.url=inproc://"}),
            "--set:1: network.url: inproc://evm reaches only within one process, but there are 3: "
            "put all nodes into one [[process]], or leave [[process]] out");
  EXPECT_EQ(error_of(m + "[trigger]\n", {"run.seed=3"}),
            "run.toml:4: trigger.rate: is missing; without a trigger leave the section out")
      << "it is wrong without the override, too";
}

TEST(Configuration, a_key_is_found_where_it_was_written_or_would_be) {
  const Configuration c = good(R"([network]
url = "tcp"
[source]
type = "emulator"
required = false
[[readout]]
source = [{ id = 7 }]
[[builder]]
)",
                               {"builder.0.buffer=1GiB", "event.window=100"});
  const auto place = [&c](std::string_view key) { return c.place_of(key).text(); };
  EXPECT_EQ(place("network.url"), "folder/run.toml:2");
  EXPECT_EQ(place("network.control"), "folder/run.toml:1");
  EXPECT_EQ(place("buffers.readout"), "folder/run.toml:1");
  EXPECT_EQ(place("readout.0.source.0.id"), "folder/run.toml:7");
  EXPECT_EQ(place("readout.0.source.0.required"), "folder/run.toml:5"); // of all sources
  EXPECT_EQ(place("readout.0.host"), "folder/run.toml:6");
  EXPECT_EQ(place("builder.0.buffer"), "--set:1");
  EXPECT_EQ(place("builder.7.buffer"), "folder/run.toml:8");
  const std::string causes[] = {"network", "event"};
  EXPECT_EQ(c.place_of("network.url", causes).text(), "--set:2");
  EXPECT_EQ(c.wrong("network.url", "is wrong").text, "folder/run.toml:2: network.url: is wrong");
}

TEST(Configuration, what_is_advised_for_a_page_is_right) {
  for (const char* page : {"64KiB", "128KiB", "1MiB"}) {
    for (std::uint32_t events = 1; events <= 4096; events *= 2) {
      const std::vector<std::string> overrides{fmt::format("buffers.page={}", page),
                                               fmt::format("event.batch_events={}", events)};
      const std::string error = error_of(minimal, overrides);
      if (error == "no error") continue;
      std::smatch found;
      const std::regex advice(".*: take (.*) or (event.batch_events) = (.*)");
      ASSERT_TRUE(std::regex_match(error, found, advice)) << error;
      EXPECT_EQ(error_of(minimal, {overrides[1], "buffers.page=" + found[1].str()}), "no error");
      EXPECT_EQ(error_of(minimal, {overrides[0], "event.batch_events=" + found[3].str()}),
                "no error");
    }
  }
}

TEST(Configuration, several_hosts_need_addresses_that_others_can_reach) {
  const std::string hosts = R"([event_manager]
host = "a"
[[readout]]
host = "a"
source = [{ type = "emulator" }]
[[builder]]
host = "b"
)";
  EXPECT_EQ(error_of(hosts),
            "run.toml:1: network.control: needs a port when the nodes are on several "
            "hosts, as in \"tcp://daq-evm:7000\"");
  EXPECT_EQ(
      error_of(hosts + "url = \"tcp://127.0.0.1:1\"\n[network]\ncontrol = \"tcp://a:7000\"\n"),
      "run.toml:8: builder.0.url: \"bu0\" would listen on tcp://127.0.0.1:1, where other hosts "
      "cannot "
      "reach it");
  EXPECT_EQ(error_of(hosts + "[network]\ncontrol = \"tcp://a:7000\"\n"), "no error");
  EXPECT_EQ(error_of(hosts + "[network]\ncontrol = [\"tcp://a:7000\", \"tcp://a2:7000\"]\n"),
            "no error");
  EXPECT_EQ(error_of(hosts + "[network]\ncontrol = [\"tcp://a:7000\", \"tcp://a2\"]\n"),
            "run.toml:9: network.control: needs a port when the nodes are on several hosts, as in "
            "\"tcp://daq-evm:7000\"");
}

TEST(Configuration, control_has_rails) {
  const auto two = parse(minimal, "run.toml",
                         {"network.control=[\"tcp://127.0.0.1\", \"tcp://127.0.0.2?dscp=46\"]"});
  ASSERT_TRUE(two) << two.error().text;
  ASSERT_EQ(two->event_manager().urls.size(), 2U);
  EXPECT_EQ(two->event_manager().urls[1].text(), "tcp://127.0.0.2?dscp=46");
  std::string nine;
  for (int i = 0; i < 9; ++i)
    nine += fmt::format("{}\"tcp://127.0.0.{}\"", i == 0 ? "" : ",", i + 1);
  EXPECT_EQ(error_of(minimal, {"network.control=[" + nine + "]"}),
            "--set:1: network.control: names more than 8 addresses");
}

TEST(Configuration, each_source_that_listens_has_a_port_of_its_own_or_shares_its_address) {
  const auto error = [](const std::string& first, const std::string& second,
                        const std::string& more = "") {
    return error_of("[[readout]]\nsource = [{ type = \"receive\", listen = \"" + first +
                    "\" },\n  { type = \"receive\", name = \"right\", listen = \"" + second +
                    "\" }]\n[[builder]]\n" + more);
  };
  const std::string both = "run.toml:3: readout.0.source.1.listen: source \"0x0\" and source "
                           "\"right\" would both listen on port 9000; sources that share a port "
                           "need the same text as their address";
  EXPECT_EQ(error("tcp://127.0.0.1:9000", "tcp://127.0.0.1:9000"), "no error");
  EXPECT_EQ(error("tcp://127.0.0.1:9000", "tcp://0.0.0.0:9000"), both);
  EXPECT_EQ(error("tcp://[::]:9000", "tcp://127.0.0.1:9000"), both);
  EXPECT_EQ(error("tcp://127.0.0.1:9000", "tcp://localhost:9000"), both);
  EXPECT_EQ(error("tcp://[::1]:9000", "tcp://[0:0:0:0:0:0:0:1]:9000"), both);
  EXPECT_EQ(error("tcp://127.0.0.1:9000", "tcp://127.0.0.1:9001"), "no error");
  EXPECT_EQ(error("tcp://127.0.0.1:9000", "tcp://127.0.0.2:9000"), "no error");
  EXPECT_EQ(error("tcp://127.0.0.1", "tcp://127.0.0.1"), "no error"); // any free one
  EXPECT_EQ(error("tcp://127.0.0.1", "tcp://127.0.0.1:7000",
                  "[network]\ncontrol = \"tcp://127.0.0.1:7000\"\n"),
            "run.toml:3: readout.0.source.1.listen: \"evm\" and source \"right\" would both listen "
            "on port 7000");
}

TEST(Configuration, sources_of_other_types_share_no_port) {
  EXPECT_EQ(
      error_of("[source]\ntype = \"recieve\"\nlisten = \"tcp://127.0.0.1:9000\"\n[[readout]]\n"
               "source = [{ count = 2 }]\n[[builder]]\n"),
      "run.toml:3: readout.0.source.0.listen: source \"0x0\" and source \"0x1\" would both "
      "listen on port 9000; only sources of type \"receive\" share a port");
}

TEST(Configuration, a_process_may_name_many_nodes_by_their_numbers) {
  const auto with = [](const std::string& nodes) {
    return "[[readout]]\nsource = [{ type = \"emulator\" }]\n[[builder]]\ncount = 4\n"
           "[[process]]\nnodes = [" +
           nodes + "]\n";
  };
  const Configuration c = good(with("\"ru0\", \"bu[1-3]\""));
  const auto many = std::ranges::find(c.processes, "ru0", &Process::name);
  ASSERT_NE(many, c.processes.end());
  EXPECT_EQ(many->nodes, (std::vector<std::size_t>{1, 3, 4, 5}));
  EXPECT_EQ(c.processes.size(), 3U);
  EXPECT_EQ(good(with("\"bu[2-2]\"")).processes.size(), 6U);
  for (const char* wrong : {"bu[3-1]", "bu[1-4]", "bu[1-", "bu[-1]", "bu[1]", "bu[a-b]", "bu[1-3]x",
                            "bu[0-18446744073709551616]", "bu[]"}) {
    EXPECT_THAT(error_of(with("\"" + std::string(wrong) + "\"")),
                ::testing::HasSubstr("nodes: there is no node \"bu"))
        << wrong;
  }
  EXPECT_THAT(error_of(with("\"bu[0-2]\", \"bu1\"")), ::testing::HasSubstr("named twice"));
}

TEST(Configuration, sources_share_a_port_only_within_a_process) {
  const std::string two = "[[readout]]\nsource = [{ type = \"receive\" }]\n[[readout]]\n"
                          "source = [{ type = \"receive\" }]\n[[builder]]\n"
                          "[source]\nlisten = \"tcp://127.0.0.1:9000\"\n";
  EXPECT_EQ(error_of(two),
            "run.toml:7: readout.1.source.0.listen: source \"0x0\" and source \"0x1\" would both "
            "listen on port 9000; sources share a port only within one [[process]]");
  EXPECT_EQ(error_of(two + "[[process]]\nnodes = [\"ru0\", \"ru1\"]\n"), "no error");
}

TEST(Configuration, a_list_is_one_text_for_the_type_of_a_source) {
  const auto allow = [](const std::string& value) {
    return good("[[readout]]\nsource = [{ type = \"receive\", listen = \"tcp://a\", allow = " +
                value + " }]\n[[builder]]\n")
        .sources[0]
        .settings.values.at("allow")
        .value;
  };
  EXPECT_EQ(allow("[\"10.1.0.0/16\", \"::1\"]"), "10.1.0.0/16, ::1");
  EXPECT_EQ(allow("\"10.1.0.0/16\""), "10.1.0.0/16");
  EXPECT_EQ(
      error_of("[[readout]]\nsource = [{ type = \"receive\", allow = [7] }]\n[[builder]]\n"),
      "run.toml:2: readout.0.source.0.allow: holds a whole number; a list of texts is wanted");
}

// With these keys in its only source.
std::string numbered(const std::string& keys, const std::string& more = "") {
  return "[[readout]]\nsource = [{ type = \"emulator\", name = \"tagger\"" +
         (keys.empty() ? keys : ", " + keys) + " }]\n[[builder]]\n" + more;
}

TEST(Configuration, event_numbers_are_as_wide_and_begin_where_a_source_says) {
  const Configuration plain = good(numbered(""));
  EXPECT_EQ(plain.sources[0].queue.counter_bits, 64);
  EXPECT_EQ(plain.sources[0].queue.offset, 0);
  EXPECT_EQ(plain.sources[0].queue.first, std::nullopt);
  const Configuration c = good(numbered("counter_bits = 24, offset = -1000, first = 0"));
  EXPECT_EQ(c.sources[0].queue.counter_bits, 24);
  EXPECT_EQ(c.sources[0].queue.offset, -1000);
  EXPECT_EQ(c.sources[0].queue.first, 0U);
  EXPECT_EQ(good("source = { counter_bits = 32 }\n" + numbered("")).sources[0].queue.counter_bits,
            32);
}

TEST(Configuration, counters_and_numbers_that_cannot_be_are_refused) {
  const auto error = [](const std::string& keys) { return error_of(numbered(keys)); };
  const std::string at = "run.toml:2: readout.0.source.0.";
  EXPECT_EQ(error("counter_bits = 7"), at + "counter_bits: 7 is not a whole number from 8 to 64");
  EXPECT_EQ(error("counter_bits = 65"), at + "counter_bits: 65 is not a whole number from 8 to 64");
  EXPECT_EQ(error("counter_bits = 8"), "no error");
  EXPECT_EQ(error("offset = 4611686018427387905"),
            at + "offset: 4611686018427387905 is not a whole number from -4611686018427387904 to "
                 "4611686018427387904");
  EXPECT_EQ(error("offset = -4611686018427387904"), "no error");
  EXPECT_EQ(error("offset = 0.5"),
            at + "offset: 0.5 is not a whole number from -4611686018427387904 to "
                 "4611686018427387904");
  EXPECT_EQ(error("first = -1"),
            at + "first: -1 is not a whole number from 0 to 9223372036854775807");
  EXPECT_EQ(error("first = 9223372036854775807"), "no error");
}

TEST(Configuration, a_first_number_that_the_counter_never_says_is_refused) {
  const auto error = [](const std::string& keys) { return error_of(numbered(keys)); };
  const std::string at = "run.toml:2: readout.0.source.0.first: ";
  EXPECT_EQ(error("counter_bits = 8, first = 255"), "no error");
  EXPECT_EQ(error("counter_bits = 8, first = 256"),
            at + "256 is not between 0 and 255, the first range of its counter of 8 bits");
  EXPECT_EQ(error("counter_bits = 8, offset = 1000, first = 1255"), "no error");
  EXPECT_EQ(error("counter_bits = 8, offset = 1000, first = 999"),
            at + "999 is not between 1000 and 1255, the first range of its counter of 8 bits");
  EXPECT_EQ(error("counter_bits = 16, offset = -1000, first = 0"), "no error");
}

TEST(Configuration, the_window_of_event_numbers_fits_the_narrowest_counter) {
  const auto window = [](const std::string& keys, const std::string& more = "") {
    return good(numbered(keys, more)).system.event_window;
  };
  EXPECT_EQ(window(""), 65536U);
  EXPECT_EQ(window("counter_bits = 16"), 32768U);
  EXPECT_EQ(window("counter_bits = 24"), 65536U);
  EXPECT_EQ(window("counter_bits = 16", "[event]\nwindow = 32768\n"), 32768U);
  EXPECT_EQ(
      error_of(numbered("counter_bits = 16", "[event]\nwindow = 32769\n")),
      "run.toml:5: event.window: 32769 is more than half the range of source tagger's counter "
      "of 16 bits: at most 32768");
  EXPECT_EQ(error_of(numbered("", "[event]\nwindow = 1\n")),
            "run.toml:5: event.window: 1 is not a whole number from 2 to 4611686018427387904");
  EXPECT_EQ(window("", "[event]\nwindow = 2\n"), 2U);
}

TEST(Configuration, shaping_fits_the_topology) {
  const auto shaped = [](const std::string& more) {
    return std::string(minimal) + "[[readout]]\nsource = [{ id = 2, type = \"emulator\" }]\n" +
           "[shaping]\npolicy = \"linear-shift\"\n" + more;
  };
  const auto of = [&](const std::string& more) { return good(shaped(more)).system.shaping; };
  EXPECT_FALSE(good(minimal).system.shaping.on());
  EXPECT_EQ(good(minimal).system.message_max(), 512U << 10);
  EXPECT_EQ(of("").policy, builder::shaping::Policy::linear_shift);
  EXPECT_EQ(of("").carrier, 64U << 10);
  EXPECT_EQ(of("").window, 512U << 10); // four carriers of each of two readout units
  EXPECT_EQ(of("[event]\nbatch_events = 4096\n").carrier, 128U << 10);
  EXPECT_EQ(of("[buffers]\npage = \"64KiB\"\n").carrier, 32U << 10);
  EXPECT_EQ(of("carrier = \"32KiB\"\nwindow = \"128KiB\"\n").window, 128U << 10);
  EXPECT_EQ(good(shaped("carrier = \"32KiB\"\n")).system.message_max(), 32U << 10);
  // What is given decides about the rest.
  EXPECT_EQ(of("window = \"1MiB\"\n").carrier, 64U << 10);
  EXPECT_EQ(of("window = \"100KiB\"\n").carrier, 25U << 10);
  EXPECT_EQ(good(shaped("window = \"100KiB\"\n")).system.batch_events, 1024U);
  EXPECT_EQ(good(shaped("window = \"60KiB\"\n")).system.batch_events, 512U);
  EXPECT_EQ(good(shaped("carrier = \"8KiB\"\n")).system.batch_events, 256U);
  EXPECT_EQ(good(shaped("window = \"8KiB\"\n")).system.batch_events, 64U);
  for (const auto policy : {builder::shaping::Policy::random, builder::shaping::Policy::tokens,
                            builder::shaping::Policy::barrel_shifter}) {
    const std::string text = fmt::format("[shaping]\npolicy = \"{}\"\n", name(policy));
    EXPECT_EQ(good(std::string(minimal) + text).system.shaping.policy, policy);
  }
}

TEST(Configuration, a_shaping_that_cannot_serve_the_topology_is_refused) {
  const auto error = [](const std::string& more) {
    return error_of(std::string(minimal) + "count = 3\n[shaping]\n" + more);
  };
  EXPECT_EQ(error("policy = \"round\"\n"),
            "run.toml:6: shaping.policy: \"round\" is none of \"none\", \"random\", "
            "\"linear-shift\", \"tokens\", \"barrel-shifter\"");
  EXPECT_EQ(error("policy = \"random\"\ntokens = 1\n"),
            "run.toml:7: shaping.tokens: counts only with shaping.policy = \"tokens\"");
  EXPECT_EQ(error("policy = \"tokens\"\ntokens = 2\n"),
            "run.toml:7: shaping.tokens: 2 is not a whole number from 1 to 1");
  EXPECT_EQ(error("window = \"1MiB\"\n"),
            "run.toml:6: shaping.window: counts only with a shaping.policy");
  EXPECT_TRUE(parse(std::string(minimal) + "[shaping]\npolicy = \"none\"\nwindow = \"1MiB\"\n",
                    "run.toml", {})
                  .has_value());
  EXPECT_EQ(
      error("policy = \"random\"\ncarrier = \"1MiB\"\n"),
      "run.toml:7: shaping.carrier: 1 MiB is more than half a page (buffers.page = 1 MiB): at "
      "most 512KiB");
  EXPECT_EQ(error("policy = \"random\"\ncarrier = \"512B\"\n"),
            "run.toml:7: shaping.carrier: takes at least 2KiB");
  EXPECT_EQ(
      error("policy = \"random\"\ncarrier = \"16KiB\"\n[event]\nbatch_events = 1024\n"),
      "run.toml:9: event.batch_events: 1024 are too many for carriers of 16 KiB: take 512, or "
      "shaping.carrier = 32KiB");
  EXPECT_EQ(
      error("policy = \"random\"\nwindow = \"32KiB\"\n[event]\nbatch_events = 1024\n"),
      "run.toml:9: event.batch_events: 1024 are too many for carriers of 16 KiB: take 512, or "
      "shaping.window = 64KiB");
  EXPECT_EQ(
      error("policy = \"random\"\ncarrier = \"64KiB\"\nwindow = \"100KiB\"\n"),
      "run.toml:8: shaping.window: 100 KiB is less than 2 carriers of 64 KiB for each readout "
      "unit (1 of them): take 128KiB or a smaller shaping.carrier");
  EXPECT_EQ(error("policy = \"random\"\nwindow = \"1KiB\"\n"),
            "run.toml:7: shaping.window: 1 KiB is less than 2 carriers of 2 KiB for each readout "
            "unit (1 of them): take 4KiB");
  EXPECT_EQ(
      error("policy = \"random\"\n[event]\nbatch_events = 4096\n[buffers]\npage = \"64KiB\"\n"),
      "run.toml:8: event.batch_events: 4096 are too many for carriers of 32 KiB: take 1024, or "
      "buffers.page = 256KiB");
  EXPECT_THAT(error("policy = \"random\"\nwindow = \"1MiB\"\n[buffers]\npage = \"2KiB\"\n"),
              ::testing::HasSubstr("buffers.page"));
}

TEST(Configuration, rails_share_the_window_of_shaping) {
  const auto shaped = [](const std::string& more) {
    return std::string(minimal) + "url = [\"tcp\", \"tcp\"]\n[shaping]\npolicy = \"random\"\n" +
           more;
  };
  const builder::System system = good(shaped("")).system;
  EXPECT_EQ(system.rails, 2U);
  EXPECT_EQ(system.shaping.window, system.shaping.window_usual(2));
  EXPECT_EQ(
      error_of(shaped("carrier = \"64KiB\"\nwindow = \"128KiB\"\n")),
      "run.toml:8: shaping.window: 128 KiB is less than 2 carriers of 64 KiB for each readout "
      "unit (1 of them) over each of 2 rails: take 256KiB or a smaller shaping.carrier");
}

TEST(Configuration, a_rail_with_one_end_is_refused) {
  EXPECT_EQ(error_of(std::string(minimal) + "url = [\"tcp\", \"tcp\"]\n[[builder]]\n"),
            "run.toml:1: network.url: \"bu1\" has 1 address and \"bu0\" 2, so a rail would have "
            "one end: give all builder units an address on each rail");
}

TEST(Configuration, a_slice_has_a_number_and_sources_that_merge_others) {
  const Configuration c = good(R"([slice]
number = 1
of = 2
block = 2048
[[readout]]
source = [{ id = 0x1000, type = "receive", merged = ["1-3", 8], merged_optional = [2] }]
[[builder]]
)");
  EXPECT_EQ(c.system.slice, (wire::Slice{.number = 1, .of = 2, .block = 2048}));
  std::vector<SourceId> ids;
  std::vector<bool> required;
  for (const auto& member : c.system.sources.front().merged) {
    ids.push_back(member.id);
    required.push_back(member.required);
  }
  EXPECT_THAT(ids, ElementsAre(1U, 2U, 3U, 8U));
  EXPECT_TRUE(c.system.sources.front().required);
  EXPECT_THAT(required, ElementsAre(true, false, true, true));
  EXPECT_EQ(good(minimal).system.slice, wire::Slice{});
}

TEST(Configuration, a_source_of_super_fragments_is_required_if_one_that_it_merges_is) {
  const Configuration c = good(R"([[readout]]
source = [{ id = 7, type = "receive", merged = [1, 2], merged_optional = [1, 2] }]
[[builder]]
)");
  EXPECT_FALSE(c.system.sources.front().required);
}

TEST(Configuration, a_slice_that_cannot_be_is_refused) {
  using ::testing::HasSubstr;
  const auto slice = [](const std::string& keys) {
    return error_of("[slice]\n" + keys + "\n" + minimal);
  };
  EXPECT_THAT(slice("number = 2\nof = 2"), HasSubstr("slice.number: is not below slice.of = 2"));
  EXPECT_EQ(good("[slice]\nblock = 512\n" + std::string(minimal) +
                 "[shaping]\npolicy = \"random\"\nwindow = \"20KiB\"\n")
                .system.batch_events,
            512U)
      << "that fits into a carrier";
  EXPECT_THAT(slice("block = 512"), HasSubstr("power of two from event.batch_events = 1024"));
  EXPECT_THAT(slice("block = 3000"), HasSubstr("power of two from event.batch_events = 1024"));
  const auto source = [](const std::string& keys) {
    return error_of("[[readout]]\nsource = [{ id = 7, type = \"receive\", " + keys +
                    " }, { id = 8, type = \"receive\", merged = [11] }]\n[[builder]]\n");
  };
  EXPECT_THAT(source("merged = [5, 8]"), HasSubstr("8 (0x8) is also the id of another source"));
  EXPECT_THAT(source("merged = [11]"), HasSubstr("11 (0xb) is also the id of another source"));
  EXPECT_THAT(source("merged = [\"5-x\"]"), HasSubstr("is no source's id"));
  EXPECT_THAT(source("merged = [5], merged_optional = [6]"), HasSubstr("is not one of"));
  EXPECT_THAT(source("merged = [5], count = 2"), HasSubstr("leave out count"));
  EXPECT_THAT(source("merged = []"), HasSubstr("merged: is an empty list: leave it out for a "
                                               "source of plain fragments"));
  EXPECT_THAT(source("merged = [5], offset = -1"),
              HasSubstr("offset: super-fragments have the numbers of their group: leave it out"));
  EXPECT_THAT(source("merged = [5], counter_bits = 32"),
              HasSubstr("counter_bits: super-fragments have the numbers of their group"));
  EXPECT_THAT(source("merged = [\"100-199\"], fragment_max = \"1KiB\""),
              HasSubstr("fragment_max: 1 KiB is less than what a super-fragment of 100 sources has "
                        "before their data, "));
}

TEST(Configuration, a_slow_source_is_given_up_no_earlier_than_a_silent_one) {
  using namespace std::chrono_literals;
  const auto slow = [](const std::string& value) {
    return numbered("", "[event]\ndeadline = \"2s\"\ngive_up_slow = " + value + "\n");
  };
  EXPECT_EQ(good(minimal).system.event_give_up_slow, Duration{0}); // never
  EXPECT_EQ(good(slow("\"1min\"")).system.event_give_up_slow, Duration{60s});
  EXPECT_EQ(good(slow("\"2s\"")).system.event_give_up_slow, Duration{2s});
  EXPECT_EQ(error_of(slow("\"1999ms\"")),
            "run.toml:6: event.give_up_slow: is below event.deadline; leave it out to wait for "
            "ever");
  EXPECT_THAT(error_of(slow("3")), ::testing::StartsWith("run.toml:6: event.give_up_slow: "));
}

TEST(Configuration, a_run_drains_for_longer_than_events_wait_for_a_silent_source) {
  using namespace std::chrono_literals;
  using ::testing::HasSubstr;
  EXPECT_EQ(good(minimal).system.drain, Duration{1min});
  const auto with = [](const std::string& drain, const std::string& deadline) {
    return std::string(minimal) + "[run]\n" + drain + "\n[event]\n" + deadline + "\n";
  };
  EXPECT_EQ(good(with("drain = \"1001ms\"", "")).system.drain, Duration{1001ms});
  EXPECT_EQ(good(with("drain = \"3min\"", "deadline = \"2min\"")).system.drain, Duration{3min});
  EXPECT_EQ(good(with("", "deadline = \"30s\"")).system.drain, Duration{1min});
  EXPECT_EQ(good(with("", "deadline = \"2min\"")).system.drain, Duration{4min}); // it follows
  EXPECT_EQ(error_of(with("drain = \"1ms\"", "")),
            "run.toml:5: run.drain: 1 ms is not longer than event.deadline = 1 s, for which events "
            "wait for a silent source: raise run.drain, or lower event.deadline");
  EXPECT_THAT(error_of(with("drain = \"2s\"", "deadline = \"2s\"")),
              HasSubstr("run.toml:5: run.drain: 2 s is not longer than event.deadline = 2 s"));
  EXPECT_THAT(error_of(with("drain = \"5s\"", ""), {"event.deadline=10s"}),
              HasSubstr("--set:1: run.drain: 5 s is not longer than event.deadline = 10 s"));
}

std::vector<std::string> names_of(const std::vector<Source>& sources) {
  std::vector<std::string> names;
  for (const Source& source : sources) names.push_back(source.settings.name);
  return names;
}

// ru0: adc0, adc1, 0x12, 0x13; ru1: adc2, adc3, 0x14, 0x15; ru2: tdc.
constexpr const char* three_units = R"([[readout]]
count = 2
source = [{ id = 1, count = 2, name = "adc", type = "emulator" },
          { id = 0x12, count = 2, type = "emulator" }]
[[readout]]
cpu = 3
source = [{ name = "tdc", type = "emulator" }]
[[builder]]
)";

TEST(Configuration, sources_that_are_left_out_take_no_part_and_the_others_stay_as_they_are) {
  const Configuration c =
      good(three_units, {R"(run.without=["adc2", "0x13", "18", "adc2", "0x0014"])"});
  EXPECT_THAT(names_of(c.sources), ElementsAre("adc0", "adc1", "adc3", "0x15", "tdc"));
  EXPECT_THAT(names_of(c.sources_left_out), ElementsAre("0x12", "0x13", "adc2", "0x14"));
  EXPECT_EQ(c.sources[2].settings.id, 4U);
  EXPECT_EQ(c.sources[4].settings.id, 0x16U);
  EXPECT_EQ(c.system.sources.size(), 5U);
  EXPECT_EQ(c.node_names(), "evm, ru0, ru1, ru2, bu0");
  EXPECT_EQ(c.sources_of(1), (std::pair<std::size_t, std::size_t>{2, 4}));
}

TEST(Configuration, sources_that_are_not_enabled_are_left_out) {
  const auto with = [](const std::string& first, const std::string& common) {
    return good("[[readout]]\nsource = [{ id = 5, count = 2, type = \"emulator\", " + first +
                " }, { type = \"emulator\", enabled = true }]\n[[builder]]\n[source]\n" + common);
  };
  for (const Configuration& c :
       {with("enabled = false", ""), with("name = \"a\"", "enabled = false\n"),
        with("enabled = false", "[run]\nwithout = [\"0x5\"]\n")}) {
    EXPECT_THAT(names_of(c.sources), ElementsAre("0x7"));
    EXPECT_EQ(c.sources_left_out.size(), 2U);
  }
  EXPECT_EQ(good(std::string(minimal) + "[[readout]]\nsource = [{ id = 7, enabled = false, type = "
                                        "\"no such type\" }]\n")
                .sources.size(),
            1U)
      << "another one may have its id";
}

TEST(Configuration, a_readout_unit_without_any_of_its_sources_takes_no_part) {
  const std::string processes =
      "[[process]]\nnodes = [\"ru0\"]\n[[process]]\nname = \"p\"\nnodes = [\"bu0\", \"ru[1-2]\"]\n";
  const std::vector<std::string> without{R"(run.without=["adc0", "adc1", "0x12", "0x13"])"};
  const Configuration c = good(three_units + processes, without);
  EXPECT_EQ(c.node_names(), "evm, ru1, ru2, bu0");
  EXPECT_THAT(c.readouts_left_out, ElementsAre("ru0"));
  EXPECT_THAT(c.system.readout_units, ElementsAre("ru1", "ru2"));
  EXPECT_THAT(c.nodes[2].cpus, ElementsAre(3));
  EXPECT_EQ(c.sources_of(0), (std::pair<std::size_t, std::size_t>{0, 4}));
  EXPECT_EQ(c.sources[4].readout, 1U);
  ASSERT_EQ(c.processes.size(), 2U);
  EXPECT_THAT(c.processes[0].nodes, ElementsAre(0));
  EXPECT_EQ(c.processes[1].name, "p");
  EXPECT_THAT(c.processes[1].nodes, ElementsAre(1, 2, 3));
  EXPECT_EQ(c.processes[0].place, 0U);
  EXPECT_EQ(c.processes[1].place, 2U) << "as it would be with ru0";
  EXPECT_THAT(good(three_units, {"network.url=inproc://", without[0]}).processes[0].nodes,
              ElementsAre(0, 1, 2, 3));
  const Configuration shared =
      good(std::string(three_units) + "[[process]]\nnodes = [\"ru0\", \"bu0\"]\n", without);
  EXPECT_EQ(shared.processes[1].name, "ru0") << "who starts it knows it by this name";
  EXPECT_THAT(shared.processes[1].nodes, ElementsAre(3));
}

TEST(Configuration, tokens_for_readout_units_that_are_left_out_are_no_error) {
  const std::string tokens =
      std::string(three_units) + "[shaping]\npolicy = \"tokens\"\ntokens = 3\n";
  EXPECT_EQ(good(tokens).system.shaping.tokens, 3U);
  EXPECT_EQ(good(tokens, {"run.without=tdc"}).system.shaping.tokens, 2U);
}

TEST(Configuration, what_cannot_be_left_out_is_said_in_one_line) {
  const std::string three = three_units;
  EXPECT_EQ(error_of(three + "[run]\nwithout = [\"adc1\", \"adc4\"]\n"),
            "run.toml:10: run.without: there is no source \"adc4\"; there are: adc0, adc1, 0x12, "
            "0x13, adc2, adc3, 0x14, 0x15, tdc");
  EXPECT_EQ(error_of(three, {"run.without+=24"}),
            "--set:1: run.without: there is no source \"24\"; there are: adc0, adc1, 0x12, 0x13, "
            "adc2, adc3, 0x14, 0x15, tdc");
  EXPECT_THAT(error_of("[[readout]]\nsource = [{ id = 0, count = 17, type = \"emulator\" }]\n"
                       "[[builder]]\n[run]\nwithout = [\"a\"]\n"),
              ::testing::EndsWith("there are: 0x0, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, "
                                  "0xa, 0xb, 0xc, 0xd, 0xe, 0xf, ..."));
  const std::string m = minimal;
  EXPECT_EQ(error_of(m + "[run]\nwithout = [\"0x7\"]\n"),
            "run.toml:5: run.without: no source is left: keep one at least");
  EXPECT_EQ(error_of(m + "[source]\nenabled = false\n[run]\nwithout = [\"0x7\"]\n"),
            "run.toml:5: readout.0.source.0.enabled: no source is left: keep one at least");
  EXPECT_EQ(error_of(m + "[source]\nenabled = 0\n"),
            "run.toml:5: readout.0.source.0.enabled: \"0\" is neither true nor false");
  EXPECT_EQ(error_of(m + "[[readout]]\n", {"run.without=[]"}),
            "run.toml:4: readout.1.source: readout unit \"ru1\" has none: add [[readout.source]]");
}

TEST(Configuration, a_stream_does_not_have_what_is_left_out) {
  const std::string streams = std::string(three_units) +
                              "[[filter]]\ntype = \"t\"\n[[stream]]\nname = \"s\"\n"
                              "sources = [1, 2]\n[[stream]]\nname = \"all\"\n";
  const Configuration c = good(streams, {"run.without=adc1"});
  EXPECT_THAT(c.system.streams[0].sources, ElementsAre(1));
  EXPECT_THAT(c.system.streams[1].sources, ElementsAre());
  EXPECT_EQ(error_of(streams + "[run]\nwithout = [\"adc0\", \"adc1\"]\n"),
            "run.toml:13: stream.0.sources: this run is without all sources of the stream \"s\": "
            "keep one, or take the stream out");
}

TEST(Configuration, of_super_fragments_some_sources_may_be_left_out) {
  const std::string slice = "[[readout]]\nsource = [{ id = 9, name = \"left\", type = \"receive\", "
                            "merged = [1, 2], merged_optional = [1] }, { id = 7, type = "
                            "\"emulator\" }]\n[[builder]]\n";
  const Configuration c = good(slice, {"run.without=2"});
  ASSERT_EQ(c.sources.size(), 2U);
  ASSERT_EQ(c.sources[1].merged.size(), 1U);
  EXPECT_EQ(c.sources[1].merged[0].id, 1U);
  EXPECT_FALSE(c.sources[1].required);
  EXPECT_FALSE(c.system.sources[1].required);
  EXPECT_THAT(names_of(good(slice, {"run.without=[\"0x1\", 2]"}).sources), ElementsAre("0x7"));
  EXPECT_THAT(names_of(good(slice, {"run.without=left"}).sources), ElementsAre("0x7"));
  EXPECT_THAT(error_of(slice, {"run.without=3"}),
              ::testing::HasSubstr("there are: 0x7, left, 0x1, 0x2"));
}

TEST(Configuration, a_file_that_is_not_there_says_so) {
  const auto result = load("/nowhere/at/all.toml", {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::not_found);
  EXPECT_EQ(result.error().text,
            "/nowhere/at/all.toml: cannot be opened: No such file or directory");
}

} // namespace
} // namespace fanin::config
