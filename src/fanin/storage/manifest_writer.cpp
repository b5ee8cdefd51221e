#include "fanin/storage/manifest_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"
#include "fanin/version.hpp"

namespace fanin::storage {
namespace {

json::Value to_json(const ManifestSource& source) {
  json::Value reasons{json::Object{}};
  for (const auto& [reason, count] : source.dropped_by_reason) reasons[reason] = count;
  json::Value missing{json::Object{}};
  for (std::size_t i = 1; i < wire::missing_reasons; ++i) {
    if (source.missing[i] != 0)
      missing[name(static_cast<wire::MissingReason>(i))] = source.missing[i];
  }
  return json::Object{{"id", source.id},
                      {"name", source.name},
                      {"read", source.read},
                      {"built", source.built},
                      {"late", source.late},
                      {"dropped", source.dropped},
                      {"lost", source.lost},
                      {"dropped_by_reason", std::move(reasons)},
                      {"missing", std::move(missing)}};
}

ErrorKind manifest_error(int error_number) {
  return error_number == ENOENT   ? ErrorKind::not_found
         : error_number == ENOSPC ? ErrorKind::exhausted
                                  : ErrorKind::refused;
}

std::unexpected<Error> no_name(const std::string& path, int error_number) {
  if (error_number != EEXIST) {
    return fail_errno(manifest_error(error_number), fmt::format("create {}", path), error_number);
  }
  return fail(ErrorKind::refused, fmt::format("{} exists, and runs are never overwritten: take "
                                              "another run number or directory, or move it away",
                                              path));
}

} // namespace

// Without a name until `fill` has written what it needs: a full disk or a kill leaves no empty
// manifest. The name must be free.
Result<> ManifestWriter::make_file(const std::function<Result<>(Descriptor&)>& fill) {
  const std::filesystem::path path(path_);
  const auto hidden = (path.parent_path() / fmt::format(".{}.{}", path.filename().string(),
                                                        static_cast<int>(::getpid())))
                          .string();
  Descriptor file(::open(hidden.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return fail_errno(manifest_error(errno), fmt::format("create {}", path_), errno);
  auto done = fill(file);
  if (done && ::link(hidden.c_str(), path_.c_str()) != 0) done = no_name(path_, errno);
  ::unlink(hidden.c_str());
  return done;
}

Result<ManifestWriter> ManifestWriter::create(const std::string& directory,
                                              const ManifestHeader& header) {
  ManifestWriter writer(fmt::format("{}/{}", directory, manifest_name(header.run)));
  const json::Value line = json::Object{{"manifest", manifest_version},
                                        {"run", header.run},
                                        {"run_id", header.run_id},
                                        {"protocol", header.protocol},
                                        {"integrity", header.integrity ? "crc32c" : "none"},
                                        {"started_unix_ns", header.started_unix_ns},
                                        {"fanin", version}};
  FANIN_TRY(writer.make_file([&](Descriptor& file) {
    writer.descriptor_ = std::move(file);
    return writer.write_line(line.dump());
  }));
  writer.file_ = NamedFile(writer.path_, writer.descriptor_.get());
  return writer;
}

bool ManifestWriter::intact() {
  const auto in_file = std::as_bytes(std::span(text_)).first(written_);
  file_.expect(descriptor_.get(), {{FileMark::at_end_of(0, in_file)}});
  return file_.intact();
}

Result<> ManifestWriter::restore() {
  if (file_.has_name()) {
    if (::ftruncate(descriptor_.get(), 0) != 0)
      return fail_errno(ErrorKind::internal, fmt::format("truncate {}", path_), errno);
    written_ = 0;
    return flush();
  }
  std::error_code ignored; // making the file says it
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  Descriptor other;
  FANIN_TRY(make_file([&](Descriptor& file) -> Result<> {
    other = std::move(file);
    if (::write(other.get(), text_.data(), text_.size()) == static_cast<ssize_t>(text_.size()))
      return {};
    return fail_errno(ErrorKind::exhausted, fmt::format("write {}", path_), ENOSPC);
  }));
  descriptor_ = std::move(other);
  written_ = text_.size();
  file_ = NamedFile(path_, descriptor_.get());
  return flush();
}

Result<> ManifestWriter::write_line(const std::string& line) {
  if (text_.size() - written_ + line.size() < kept_max) {
    text_ += line;
    text_ += '\n';
  } else {
    ++left_out_;
  }
  return flush();
}

Result<> ManifestWriter::flush() {
  while (written_ < text_.size()) {
    const std::size_t rest = text_.size() - written_;
    const ssize_t outcome = ::write(descriptor_.get(), text_.data() + written_, rest);
    if (outcome < 0 && errno == EINTR) continue;
    const int error_number = outcome < 0 ? errno : ENOSPC;
    const auto torn = static_cast<std::size_t>(std::max<ssize_t>(outcome, 0));
    if (torn == rest) {
      written_ += rest;
      break;
    }
    if (torn > 0 && ::ftruncate(descriptor_.get(), static_cast<off_t>(written_)) != 0) {
      // It stays in the middle, and is written again on a line of its own.
      auto again = text_.substr(written_, torn);
      if (again.front() != '\n') again.insert(0, 1, '\n');
      written_ += torn;
      text_.insert(written_, again);
    }
    return fail_errno(error_number == ENOSPC ? ErrorKind::exhausted : ErrorKind::internal,
                      fmt::format("write {}", path_), error_number);
  }
  if (finished_ && ::fdatasync(descriptor_.get()) != 0) {
    return fail_errno(ErrorKind::internal, fmt::format("fdatasync {}", path_), errno);
  }
  if (left_out_ == 0) return {};
  return fail(ErrorKind::exhausted,
              fmt::format("{}: {} left out", path_, counted(left_out_, "line was", "lines were")));
}

Result<> ManifestWriter::add(const ManifestFile& file) {
  json::Value line =
      json::Object{{"file", file.file}, {"node", file.node}, {"incarnation", file.incarnation}};
  if (!file.host.empty()) line["host"] = file.host;
  return write_line(line.dump());
}

Result<> ManifestWriter::add(const ManifestWinner& winner) {
  const json::Value line = json::Object{{"first", winner.events.first},
                                        {"end", winner.events.end},
                                        {"attempt", winner.attempt},
                                        {"node", winner.node},
                                        {"incarnation", winner.incarnation}};
  return write_line(line.dump());
}

Result<> ManifestWriter::finish(const ManifestSummary& summary) {
  json::Value ranges{json::List{}};
  for (const EventRange& gap : summary.gap_ranges) ranges.append(json::List{gap.first, gap.end});
  json::Value gaps = json::Object{{"count", summary.gaps}, {"ranges", std::move(ranges)}};
  json::Value sources{json::List{}};
  for (const auto& source : summary.sources) sources.append(to_json(source));
  json::Value line;
  line["summary"] = json::Object{{"built", summary.built},
                                 {"incomplete", summary.incomplete},
                                 {"lost", summary.lost},
                                 {"balanced", summary.balanced},
                                 {"ended_unix_ns", summary.ended_unix_ns},
                                 {"gaps", std::move(gaps)},
                                 {"sources", std::move(sources)}};
  finished_ = true;
  return write_line(line.dump());
}

} // namespace fanin::storage
