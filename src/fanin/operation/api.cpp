#include "fanin/operation/api.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/number.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/operation/page_files.hpp"
#include "fanin/operation/reserve_run.hpp"
#include "fanin/operation/run_text.hpp"

namespace fanin::operation {
namespace {

constexpr Duration beat = std::chrono::seconds{5};
constexpr std::string_view prefix = "/api/v1/";
constexpr std::uint64_t listed_usually = 50;
constexpr std::uint64_t listed_most = 1000;
constexpr std::size_t text_most = 10'000; // bytes of a comment
constexpr std::array local_names{"localhost", "127.0.0.1", "[::1]"};
constexpr std::string_view policy = "default-src 'none'; script-src 'self'; style-src 'self'; "
                                    "connect-src 'self'; img-src 'self'; frame-ancestors 'none'; "
                                    "base-uri 'none'; form-action 'none'";

HttpReply refuse(int status, std::string_view why) {
  return {.status = status, .body = json::Value(json::Object{{"error", why}}).dump()};
}

HttpReply refuse(const Error& error) {
  const int status = error.kind == ErrorKind::not_found ? 404
                     : error.kind == ErrorKind::usage   ? 422
                                                        : 503;
  return refuse(status, error.text);
}

HttpReply reply(const json::Value& value, int status = 200) {
  return {.status = status, .body = value.dump(), .headers = {{"Cache-Control", "no-store"}}};
}

std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".json")) return "application/json";
  return "text/javascript; charset=utf-8";
}

HttpReply file(std::string_view name) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, name, &PageFile::name);
  if (found == files.end()) return refuse(404, "there is no such page");
  return {.type = std::string(type_of(name)),
          .body = std::string(found->content),
          .headers = {{"Content-Security-Policy", std::string(policy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

// "localhost:8080" and "http://localhost:8080" name the same.
std::string host_part(std::string text) {
  if (const auto scheme = text.find("://"); scheme != std::string::npos) text.erase(0, scheme + 3);
  const auto colon = text.rfind(':');
  if (colon != std::string::npos && text.find(']', colon) == std::string::npos) text.erase(colon);
  return text;
}

json::Value to_json(const ShownLine& line) {
  return json::Object{{"unix_ms", line.unix_ns / 1'000'000},
                      {"level", line.level},
                      {"node", line.node},
                      {"text", line.text},
                      {"run", line.run}};
}

json::Value table_of_transitions() {
  json::Value rows{json::List{}};
  for (const Transition& row : transitions())
    rows.append(json::Object{{"from", name(row.from)},
                             {"command", name(row.command)},
                             {"via", name(row.via)},
                             {"to", name(row.to)},
                             {"xdaq", row.xdaq}});
  return json::Object{{"transitions", std::move(rows)}};
}

// What is wrong with what a command was given; empty: nothing.
std::string wrong_key(const json::Value& body) {
  const auto is_texts = [](const json::Value& value) {
    return value.is_list() && std::ranges::all_of(value.list(), &json::Value::is_text);
  };
  for (const auto& [key, value] : body.object()) {
    const bool text =
        key == "configuration" || key == "duration" || key == "kind" || key == "comment";
    const bool texts = key == "set" || key == "without";
    const bool number = key == "version" || key == "events";
    if (!text && !texts && !number)
      return fmt::format("{}: is no key of a command", printable(key));
    const bool good = (text && value.is_text()) || (texts && is_texts(value)) ||
                      (number && value.is_natural()) || (key == "events" && value.is_text());
    if (!good)
      return fmt::format("{}: is no {}", key, text ? "text" : texts ? "list of texts" : "number");
  }
  return "";
}

std::uint64_t number_or(const HttpRequest& request, const char* key, std::uint64_t otherwise) {
  const auto found = request.query.find(key);
  if (found == request.query.end()) return otherwise;
  return parse_number<std::uint64_t>(found->second).value_or(otherwise);
}

} // namespace

Api::Api(net::Loop& loop, RunControl& control, Registry& registry, const Tokens& tokens,
         ApiOptions options)
    : loop_(loop),
      control_(control),
      registry_(registry),
      tokens_(tokens),
      options_(std::move(options)),
      events_(options_.first_event),
      sampler_(loop_, [](LogLevel, std::string_view) {}), // the log of the run says it
      beat_([this] { on_beat(); }),
      changed_([this] {
        events_.add("status", control_.status());
        if (server_ != nullptr) server_->wake_streams();
      }) {
  beat_.start(loop_, loop_.now() + beat);
}

void Api::on_change() {
  if (!changed_.active()) changed_.start(loop_, loop_.now());
}

void Api::on_line(const ShownLine& line) {
  events_.add("log", to_json(line));
  if (server_ != nullptr) server_->wake_streams();
}

void Api::on_beat() {
  beat_.start(loop_, loop_.now() + beat);
  events_.keep_alive();
  if (server_ != nullptr) server_->wake_streams();
}

// --- who asks ------------------------------------------------------------------------------------

// A page of another origin, or a name that leads here by chance or by malice (DNS rebinding).
std::optional<HttpReply> Api::check_origin(const HttpRequest& request) const {
  if (request.user) return std::nullopt;
  const auto known = [this](const std::string& text) {
    const std::string host = host_part(text);
    return std::ranges::find(local_names, host) != local_names.end() ||
           std::ranges::find(options_.host_names, host) != options_.host_names.end();
  };
  const std::string host = request.header("host");
  if (!known(host))
    return refuse(403, fmt::format("'{}' is no name of this server: use localhost, or give "
                                   "`fanin serve` --host-name",
                                   printable(host)));
  const std::string origin = request.header("origin");
  if (origin.empty() || known(origin)) return std::nullopt;
  return refuse(403, fmt::format("a page of {} may not use this server", printable(origin)));
}

std::optional<Api::Caller> Api::identify(const HttpRequest& request, HttpReply& refused) const {
  if (request.user) {
    if (*request.user == 0 || *request.user == user_number())
      return Caller{user_name(*request.user), AccessRole::operate};
    refused = refuse(403, "this run control belongs to another user");
    return std::nullopt;
  }
  constexpr std::string_view scheme = "Bearer ";
  const std::string given = request.header("authorization");
  const std::string_view token =
      given.starts_with(scheme) ? std::string_view(given).substr(scheme.size()) : "";
  if (const auto role = tokens_.role_of(token))
    return Caller{fmt::format("the {} token", name(*role)), *role};
  refused = refuse(401, "a token is needed (Authorization: Bearer TOKEN): `fanin serve` prints a "
                        "URL with one");
  refused.headers.emplace_back("WWW-Authenticate", "Bearer");
  return std::nullopt;
}

HttpReply Api::answer(const HttpRequest& request) {
  if (const auto refused = check_origin(request)) return *refused;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const std::string_view path = request.path;
  if (!path.starts_with(prefix)) {
    if (!reads) return refuse(405, "the page can only be read");
    if (path == "/") return file("index.html");
    if (path == "/favicon.ico") return {.status = 204, .type = ""};
    constexpr std::string_view folder = "/page/";
    return path.starts_with(folder) ? file(path.substr(folder.size()))
                                    : refuse(404, "there is no such page");
  }
  HttpReply refused;
  const auto caller = identify(request, refused);
  if (!caller) return refused;
  if (reads) return get(request, path.substr(prefix.size()), *caller);
  if (request.method == "POST") return post(request, path.substr(prefix.size()), *caller);
  return refuse(405, "only GET and POST are known here");
}

// --- reading -------------------------------------------------------------------------------------

json::Value Api::status(const Caller& caller) const {
  json::Value status = control_.status();
  status["role"] = name(caller.role);
  return status;
}

HttpReply Api::get(const HttpRequest& request, std::string_view path, const Caller& caller) {
  constexpr std::string_view nodes = "nodes/";
  constexpr std::string_view runs = "runs/";
  if (path == "status") return reply(status(caller));
  if (path == "events") return stream(request, caller);
  if (path == "log") return log_lines(request);
  if (path == "history") return reply(control_.history());
  if (path == "runs") return list_runs(request);
  if (path == "openapi.json") return file("openapi.json");
  if (path == "transitions") return reply(table_of_transitions());
  if (path == "sample") {
    const auto name_of = [this](SourceId source) { return control_.source_name(source); };
    return reply(sampler_.sample(control_.event_places(), name_of));
  }
  if (path == "commands") {
    const auto commands =
        registry_.commands(std::min(number_or(request, "last", listed_usually), listed_most));
    if (!commands) return refuse(commands.error());
    json::Value list{json::List{}};
    for (const AskedCommand& one : *commands)
      list.append(json::Object{{"unix_ms", one.unix_ns / 1'000'000},
                               {"who", one.who},
                               {"command", one.command},
                               {"outcome", one.outcome}});
    return reply(json::Object{{"commands", std::move(list)}});
  }
  if (path.starts_with(nodes)) return node(path.substr(nodes.size()));
  if (path.starts_with(runs)) return get_run(path.substr(runs.size()));
  return refuse(404, "there is no such thing here: /api/v1/openapi.json says what there is");
}

HttpReply Api::stream(const HttpRequest& request, const Caller& caller) {
  const auto last = parse_number<std::uint64_t>(request.header("last-event-id"));
  return {.type = "text/event-stream",
          .headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
          .stream = events_.from(last, status(caller))};
}

HttpReply Api::log_lines(const HttpRequest& request) const {
  const auto& lines = control_.lines();
  const std::size_t last =
      std::min<std::size_t>(number_or(request, "last", lines.size()), lines.size());
  json::Value list{json::List{}};
  for (std::size_t i = lines.size() - last; i < lines.size(); ++i) list.append(to_json(lines[i]));
  return reply(json::Object{{"lines", std::move(list)}});
}

HttpReply Api::node(std::string_view name) const {
  json::Value node = control_.node(name);
  if (node.is_null()) return refuse(404, fmt::format("there is no node {}", printable(name)));
  node["log"] = json::List{};
  for (const ShownLine& line : control_.lines()) {
    if (line.node == name || line.text.starts_with(fmt::format("{} ", name)) ||
        line.text.contains(fmt::format("'{}'", name)))
      node["log"].append(to_json(line));
  }
  return reply(node);
}

HttpReply Api::list_runs(const HttpRequest& request) {
  RunFilter filter{.kind = {}, .quality = {}};
  filter.last =
      std::clamp<std::uint64_t>(number_or(request, "last", listed_usually), 1, listed_most);
  filter.before = static_cast<RunNumber>(number_or(request, "before", 0));
  if (const auto kind = request.query.find("kind"); kind != request.query.end())
    filter.kind = kind->second;
  if (const auto quality = request.query.find("quality"); quality != request.query.end())
    filter.quality = quality_named(quality->second);
  const auto runs = registry_.list(filter);
  if (!runs) return refuse(runs.error());
  json::Value list{json::List{}};
  for (auto run = runs->rbegin(); run != runs->rend(); ++run) list.append(operation::to_json(*run));
  return reply(json::Object{{"runs", std::move(list)}});
}

HttpReply Api::get_run(std::string_view path) {
  const auto slash = path.find('/');
  const auto number = parse_number<RunNumber>(path.substr(0, slash));
  if (!number) return refuse(404, "runs have numbers");
  const auto run = registry_.find(*number);
  if (!run) return refuse(run.error());
  const std::string_view what = slash == std::string_view::npos ? "" : path.substr(slash + 1);
  if (what.empty()) {
    const auto details = details_of(registry_, *run);
    return details ? reply(*details) : refuse(details.error());
  }
  if (what == "log") {
    const auto lines = registry_.log(*number);
    return lines ? reply(operation::to_json(*lines, *number)) : refuse(lines.error());
  }
  if (what == "configuration") {
    const auto text = configurations_of(registry_, *number);
    if (!text) return refuse(text.error());
    return {.type = "text/plain; charset=utf-8",
            .body = *text,
            .headers = {{"X-Content-Type-Options", "nosniff"}}};
  }
  return refuse(404, "of a run there are its log and its configuration");
}

// --- commands ------------------------------------------------------------------------------------

HttpReply Api::post(const HttpRequest& request, std::string_view path, const Caller& caller) {
  constexpr std::string_view runs = "runs/";
  json::Value body = json::Object{};
  if (!request.body.empty()) {
    auto parsed = json::Value::parse(request.body);
    if (!parsed || !parsed->is_object()) return refuse(400, "the body is no JSON object");
    body = std::move(*parsed);
  }
  if (caller.role != AccessRole::operate)
    return refuse(403, "this token may only look: use one with the role operate");
  if (path.starts_with(runs)) return change_run(path.substr(runs.size()), body, caller);
  if (const auto wanted = command_named(path)) return command(*wanted, body, caller);
  return refuse(404, "there is no such command: configure, start, stop, abort, halt, recover");
}

HttpReply Api::command(Command command, const json::Value& body, const Caller& caller) {
  if (const std::string wrong = wrong_key(body); !wrong.empty()) return refuse(422, wrong);
  CommandRequest request{.command = command,
                         .who = caller.who,
                         .version = {},
                         .configuration = body.at("configuration").text(),
                         .changes = {},
                         .kind = body.at("kind").text(),
                         .comment = {}};
  if (const json::Value* version = body.find("version")) request.version = version->natural();
  if (const json::Value* comment = body.find("comment")) request.comment = comment->text();
  if (request.comment && request.comment->size() > text_most)
    return refuse(422, fmt::format("a comment has up to {} bytes", text_most));
  if (!request.kind.empty() && request.kind != "physics" && request.kind != "test")
    return refuse(422, "kind is physics or test");
  const bool changes =
      std::ranges::any_of(std::array{"duration", "events", "set", "without"},
                          [&](const char* key) { return body.find(key) != nullptr; });
  if (changes) request.changes = RunChanges::from(body);
  const auto refused = control_.ask(request);
  record(caller, name(command), body, refused ? refused->text : name(control_.state()));
  if (!refused)
    return reply(json::Object{{"state", name(control_.state())},
                              {"version", control_.version()},
                              {"run", control_.run()}},
                 202);
  using Kind = CommandRefusal::Kind;
  return refuse(refused->kind == Kind::not_now ? 409
                : refused->kind == Kind::wrong ? 422
                                               : 503,
                refused->text);
}

HttpReply Api::change_run(std::string_view path, const json::Value& body, const Caller& caller) {
  const auto slash = path.find('/');
  const auto number = parse_number<RunNumber>(path.substr(0, slash));
  if (!number || slash == std::string_view::npos)
    return refuse(404, "write to runs/NUMBER/comment or runs/NUMBER/quality");
  const Change by{caller.who, options_.unix_ns()};
  const std::string_view what = path.substr(slash + 1);
  Result<> done;
  if (what == "comment") {
    const std::string text = body.at("text").text();
    if (text.size() > text_most)
      return refuse(422, fmt::format("a comment has up to {} bytes", text_most));
    done = registry_.set_comment(*number, text, by);
    if (done) control_.commented(*number, text);
  } else if (what == "quality") {
    const auto quality = quality_named(body.at("quality").text());
    if (!quality) return refuse(422, "quality is good, bad or unknown");
    done = registry_.set_quality(*number, *quality, by);
  } else {
    return refuse(404, "write to runs/NUMBER/comment or runs/NUMBER/quality");
  }
  record(caller, fmt::format("{} of run {}", what, *number), body,
         done ? "done" : done.error().text);
  return done ? reply(json::Object{}) : refuse(done.error());
}

void Api::record(const Caller& caller, std::string_view command, const json::Value& body,
                 std::string_view outcome) {
  control_.record({.unix_ns = options_.unix_ns(),
                   .who = caller.who,
                   .command = body.object().empty() ? std::string(command)
                                                    : fmt::format("{} {}", command, body.dump()),
                   .outcome = std::string(outcome)});
}

} // namespace fanin::operation
