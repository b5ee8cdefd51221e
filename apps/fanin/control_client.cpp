#include "control_client.hpp"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/operation/run_files.hpp"
#include "fanin/operation/tokens.hpp"

namespace fanin::command {
namespace {

constexpr long answer_within_s = 30;

} // namespace

struct ControlClient::Curl {
  CURL* handle = nullptr;
  curl_slist* headers = nullptr;
  std::string url; // up to /api/v1/
  std::string name; // of the server, for messages
  Descriptor folder; // of the socket: its path is short with it
  std::string socket;

  Curl() = default;
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  ~Curl() {
    curl_slist_free_all(headers);
    if (handle != nullptr) curl_easy_cleanup(handle);
  }
  void prepare(const std::string& path) {
    curl_easy_reset(handle);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_URL, (url + path).c_str());
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    if (!socket.empty()) curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, socket.c_str());
  }
  [[nodiscard]] std::unexpected<Error> failed(CURLcode code) const {
    const bool nobody = code == CURLE_COULDNT_CONNECT;
    return fail(nobody ? ErrorKind::not_found : ErrorKind::disconnected,
                fmt::format("{}: {}{}", name, curl_easy_strerror(code),
                            nobody ? ": is `fanin serve` running there (--registry, --url)?" : ""));
  }
};

namespace {

std::size_t append(char* data, std::size_t size, std::size_t count, void* text) {
  static_cast<std::string*>(text)->append(data, size * count);
  return size * count;
}

// Events of a stream, which come in any pieces.
struct Reader {
  const std::function<bool(std::string_view, const json::Value&)>& on_event;
  std::string text;
  bool ended = false;

  static std::size_t take(char* data, std::size_t size, std::size_t count, void* self) {
    Reader& reader = *static_cast<Reader*>(self);
    reader.text.append(data, size * count);
    for (auto end = reader.text.find("\n\n"); end != std::string::npos;
         end = reader.text.find("\n\n")) {
      const std::string event = reader.text.substr(0, end);
      reader.text.erase(0, end + 2);
      if (!reader.pass(event)) {
        reader.ended = true;
        return CURL_WRITEFUNC_ERROR;
      }
    }
    return size * count;
  }
  [[nodiscard]] bool pass(const std::string& event) const {
    std::istringstream lines(event);
    std::string kind;
    std::string data;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("event: ")) kind = line.substr(7);
      if (line.starts_with("data: ")) data = line.substr(6);
    }
    const auto value = json::Value::parse(data);
    return kind.empty() || !value || on_event(kind, *value);
  }
};

} // namespace

ControlClient::ControlClient(std::unique_ptr<Curl> curl) : curl_(std::move(curl)) {}
ControlClient::ControlClient(ControlClient&&) noexcept = default;
ControlClient::~ControlClient() = default;

Result<ControlClient> ControlClient::open(const Place& place) {
  auto curl = std::make_unique<Curl>();
  curl->handle = curl_easy_init();
  if (curl->handle == nullptr) return fail(ErrorKind::exhausted, "libcurl cannot start");
  const std::filesystem::path folder = operation::control_folder(place.registry);
  curl->headers = curl_slist_append(curl->headers, "Content-Type: application/json");
  if (place.url.empty()) {
    curl->name = (folder / "serve.socket").string();
    curl->folder = Descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!curl->folder)
      return fail(ErrorKind::not_found,
                  fmt::format("{}: is not there: no `fanin serve` has this registry: start it, or "
                              "give its registry (--registry)",
                              curl->name));
    curl->socket = fmt::format("/proc/self/fd/{}/serve.socket", curl->folder.get());
    curl->url = "http://localhost/api/v1/";
  } else {
    curl->name = place.url;
    curl->url = place.url + "/api/v1/";
    const std::string file =
        place.token_file.empty() ? (folder / "tokens").string() : place.token_file;
    const auto tokens = operation::Tokens::read(file);
    if (!tokens) return std::unexpected(tokens.error());
    std::string token = tokens->of(operation::AccessRole::operate);
    if (token.empty()) token = tokens->of(operation::AccessRole::view);
    if (token.empty())
      return fail(ErrorKind::usage,
                  fmt::format("{}: has no token: give a file of run control (--token-file)", file));
    curl->headers =
        curl_slist_append(curl->headers, fmt::format("Authorization: Bearer {}", token).c_str());
  }
  return ControlClient(std::move(curl));
}

Result<ControlClient::Reply> ControlClient::ask(const std::string& path, const json::Value* body) {
  Reply reply;
  curl_->prepare(path);
  const std::string text = body == nullptr ? "" : body->dump();
  if (body != nullptr) {
    curl_easy_setopt(curl_->handle, CURLOPT_POST, 1L);
    curl_easy_setopt(curl_->handle, CURLOPT_POSTFIELDS, text.c_str());
    curl_easy_setopt(curl_->handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(text.size()));
  }
  curl_easy_setopt(curl_->handle, CURLOPT_TIMEOUT, answer_within_s);
  curl_easy_setopt(curl_->handle, CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(curl_->handle, CURLOPT_WRITEDATA, &reply.body);
  if (const CURLcode code = curl_easy_perform(curl_->handle); code != CURLE_OK)
    return curl_->failed(code);
  curl_easy_getinfo(curl_->handle, CURLINFO_RESPONSE_CODE, &reply.status);
  if (auto value = json::Value::parse(reply.body)) reply.value = std::move(*value);
  return reply;
}

Result<> ControlClient::listen(
    const std::function<bool(std::string_view kind, const json::Value& data)>& on_event) {
  Reader reader{on_event, {}};
  curl_->prepare("events");
  curl_easy_setopt(curl_->handle, CURLOPT_WRITEFUNCTION, &Reader::take);
  curl_easy_setopt(curl_->handle, CURLOPT_WRITEDATA, &reader);
  curl_easy_setopt(curl_->handle, CURLOPT_LOW_SPEED_LIMIT, 1L); // bytes/s: it says that it lives
  curl_easy_setopt(curl_->handle, CURLOPT_LOW_SPEED_TIME, answer_within_s);
  curl_easy_setopt(curl_->handle, CURLOPT_FAILONERROR, 1L);
  const CURLcode code = curl_easy_perform(curl_->handle);
  if (reader.ended) return {};
  if (code == CURLE_OK) return fail(ErrorKind::disconnected, curl_->name + ": has ended");
  return curl_->failed(code);
}

} // namespace fanin::command
