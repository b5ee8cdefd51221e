#include "fanin/operation/tokens.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

#include <fmt/format.h>
#include <sodium.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"

namespace fanin::operation {
namespace {

constexpr std::size_t token_least = 16; // characters
constexpr std::size_t file_max = 64U << 10; // bytes

std::string new_token() {
  std::array<unsigned char, 24> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Result<> make_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return fail_errno(ErrorKind::refused, path, errno);
  const std::string text =
      fmt::format("# Who may use run control over TCP: a role (operate or view) and a token.\n"
                  "operate {}\nview {}\n",
                  new_token(), new_token());
  if (write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return {};
  const int number = errno;
  unlink(path.c_str());
  return fail_errno(ErrorKind::refused, path, number);
}

} // namespace

std::string_view name(AccessRole role) { return role == AccessRole::view ? "view" : "operate"; }

Result<Tokens> Tokens::read_or_make(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) FANIN_TRY(make_file(path));
  return read(path);
}

Result<Tokens> Tokens::read(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0)
    return fail_errno(errno == ENOENT ? ErrorKind::not_found : ErrorKind::refused, path, errno);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::refused, path + ": is no file");
  if ((status.st_mode & 0077) != 0 || status.st_uid != geteuid())
    return fail(ErrorKind::refused,
                fmt::format("{}: others may read these tokens: chmod 600 {}", path, path));
  std::string text(file_max, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  Tokens tokens;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string role;
    std::string token;
    if (!(words >> role)) continue;
    words >> token;
    if ((role != "view" && role != "operate") || token.size() < token_least)
      return fail(
          ErrorKind::malformed,
          fmt::format("{}:{}: a line is \"operate TOKEN\" or \"view TOKEN\", with a token of "
                      "{} characters or more",
                      path, number, token_least));
    tokens.tokens_.emplace_back(role == "view" ? AccessRole::view : AccessRole::operate, token);
  }
  return tokens;
}

std::optional<AccessRole> Tokens::role_of(std::string_view token) const {
  std::optional<AccessRole> found;
  for (const auto& [role, its] : tokens_) {
    if (its.size() == token.size() && sodium_memcmp(its.data(), token.data(), its.size()) == 0)
      found = role;
  }
  return found;
}

std::string Tokens::of(AccessRole role) const {
  const auto found = std::ranges::find(tokens_, role, &std::pair<AccessRole, std::string>::first);
  return found == tokens_.end() ? "" : found->second;
}

} // namespace fanin::operation
