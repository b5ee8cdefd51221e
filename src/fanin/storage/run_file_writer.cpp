#include "fanin/storage/run_file_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/storage/detail/append_table.hpp"
#include "fanin/storage/detail/metadata_channel.hpp"
#include "fanin/storage/detail/row_builder.hpp"
#include "fanin/storage/detail/run_file_header.hpp"
#include "fanin/storage/detail/synchronize.hpp"

namespace fanin::storage {
namespace {

// Metadata never crosses a page of this size, and the kernel copies a page whole: a kill cannot
// tear an index block in two.
constexpr hsize_t file_page_size = 4096;
struct Chunks {
  std::uint64_t bytes;
  std::uint64_t rows;
};
constexpr Chunks chunks_of_small_parts{.bytes = 64U << 10, .rows = 512};
constexpr Chunks chunks_of_large_parts{.bytes = 8U << 20, .rows = 32768};

// Space for HDF5's own growth (index blocks) on top of the chunks, so that it never meets a full
// disk: a page for each block, 8 bytes for each chunk.
constexpr std::uint64_t metadata_reserve(std::uint64_t growth) {
  return (64U << 10) + growth / 256;
}
// Taken from the disk ahead of need, where there is plenty: as a share of the file, so that a small
// file takes little.
constexpr std::uint64_t reserve_ahead(std::uint64_t size) {
  return std::min<std::uint64_t>(size / 4, 32U << 20);
}

RunFileOptions sorted(RunFileOptions options) {
  std::ranges::sort(options.sources, {}, &SourceInfo::id);
  std::ranges::sort(options.merged, {}, &MergedSource::source);
  return options;
}

bool good_node_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::ranges::all_of(name, good);
}

ErrorKind kind_of(int error_number) {
  switch (error_number) {
  case ENOSPC:
  case EDQUOT: return ErrorKind::exhausted;
  case ENOENT:
  case ENOTDIR: return ErrorKind::not_found;
  case EACCES:
  case EPERM:
  case EROFS:
  case EEXIST: return ErrorKind::refused;
  default: return ErrorKind::internal;
  }
}

} // namespace

std::string run_file_name(RunNumber run, std::string_view node, Incarnation incarnation,
                          std::uint32_t part) {
  return fmt::format("run{:06}_{}_i{}_{:04}.h5", run, node, incarnation, part);
}

struct RunFileWriter::Impl {
  explicit Impl(const RunFileOptions& given)
      : options(sorted(given)),
        rows({.sources = options.sources,
              .merged = options.merged,
              .slice = options.slice,
              .run = options.run,
              .node = options.node_index,
              .incarnation = options.incarnation}) {}
  ~Impl() { abandon(); }

  Result<> open(std::uint32_t part);
  Result<> open_hidden(const std::string& hidden);
  Result<> make_tables(std::uint32_t part);
  Result<> publish(const std::string& hidden);
  Result<> reserve(std::uint64_t growth);
  Result<> write_group();
  Result<> make_durable();
  [[nodiscard]] std::array<detail::AppendTable*, 5> tables() {
    return {&bytes, &fragments, &missing, &gaps, &events};
  }
  [[nodiscard]] bool tables_failed();
  bool close_hdf5();
  void release_reserved();
  void abandon();
  // Nothing was committed that anyone could miss.
  [[nodiscard]] bool empty() const { return events.rows() == 0 && gaps.rows() == 0; }
  void expect_marks();

  RunFileOptions options;
  std::string path;
  NamedFile named; // once it is published
  std::array<FileMark, 5> earlier{}; // of the tables, before the last group
  Descriptor descriptor;
  std::unique_ptr<detail::MetadataChannel> channel; // outlives what HDF5 has open
  detail::Handle file;
  detail::AppendTable bytes;
  detail::AppendTable fragments;
  detail::AppendTable missing;
  detail::AppendTable gaps;
  detail::AppendTable events;
  detail::RowBuilder rows;
  std::uint64_t reserved = 0; // file offset up to which the disk has promised space
  bool broken = false;
  bool torn = false; // a group has been begun and is not committed
  bool published = false;
  bool damaged = false; // by somebody else
};

Result<> RunFileWriter::Impl::open(std::uint32_t part) {
  if (!good_node_name(options.node)) {
    return fail(ErrorKind::usage, fmt::format("node name \"{}\" cannot be part of a file name: use "
                                              "letters, digits, '.', '-' and '_'",
                                              options.node));
  }
  const auto name = run_file_name(options.run, options.node, options.incarnation, part);
  path = fmt::format("{}/{}", options.directory, name);
  if (::access(path.c_str(), F_OK) == 0) {
    return fail(ErrorKind::refused,
                fmt::format("{} exists, and run files are never overwritten: take another run "
                            "number or directory, or move it away",
                            path));
  }
  // Under a hidden name until it can be read: no reader ever meets half a header.
  const auto hidden = fmt::format("{}/.{}.{}", options.directory, name, ::getpid());
  auto done = open_hidden(hidden);
  if (done) done = make_tables(part);
  if (done) done = publish(hidden);
  if (!done && descriptor) ::unlink(hidden.c_str());
  return done;
}

Result<> RunFileWriter::Impl::open_hidden(const std::string& hidden) {
  descriptor = Descriptor(::open(hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!descriptor) return fail_errno(kind_of(errno), fmt::format("create {}", path), errno);
  FANIN_TRY(reserve(0));

  channel = std::make_unique<detail::MetadataChannel>(descriptor.get());
  const detail::Hdf5Guard guard;
  const detail::Handle access{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
  const detail::Handle creation{H5Pcreate(H5P_FILE_CREATE), H5Pclose};
  const bool set =
      channel->attach(access.get()) &&
      H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0 &&
      H5Pset_file_locking(access.get(), false, true) >= 0 && // the name is ours alone
      H5Pset_file_space_strategy(creation.get(), H5F_FSPACE_STRATEGY_PAGE, false, 1) >= 0 &&
      H5Pset_file_space_page_size(creation.get(), file_page_size) >= 0;
  if (!set) return detail::fail_hdf5(fmt::format("create {}", path));
  file = detail::Handle{H5Fcreate(hidden.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                        H5Fclose};
  return file ? Result<>{} : detail::fail_hdf5(fmt::format("create {}", path));
}

Result<> RunFileWriter::Impl::make_tables(std::uint32_t part) {
  const detail::Hdf5Guard guard;
  if (auto header = detail::write_header(file.get(), options, part); !header) {
    return fail(header.error().kind, fmt::format("create {}: {}", path, header.error().text));
  }
  const auto make = [&](detail::AppendTable& table, const char* name, hid_t type,
                        std::uint64_t chunk_rows) -> Result<> {
    table = FANIN_TRY(detail::AppendTable::create(file.get(), type,
                                                  {.name = name,
                                                   .label = fmt::format("{}:{}", path, name),
                                                   .chunk_rows = chunk_rows,
                                                   .direct = options.direct}));
    return {};
  };
  const auto event_type = detail::event_row_type();
  const auto fragment_type = detail::fragment_row_type();
  const auto missing_type = detail::missing_row_type();
  const auto gap_type = detail::gap_row_type();
  const bool small = part == 1 || options.max_file <= first_part_max;
  const Chunks& usual = small ? chunks_of_small_parts : chunks_of_large_parts;
  const auto bytes_chunk = options.bytes_chunk != 0 ? options.bytes_chunk : usual.bytes;
  const auto rows_chunk = options.rows_chunk != 0 ? options.rows_chunk : usual.rows;
  FANIN_TRY(make(bytes, "/bytes", H5T_STD_U8LE, bytes_chunk));
  FANIN_TRY(make(fragments, "/fragments", fragment_type.get(), 2 * rows_chunk));
  FANIN_TRY(make(missing, "/missing", missing_type.get(), rows_chunk));
  FANIN_TRY(make(gaps, "/gaps", gap_type.get(), rows_chunk / 8 + 1));
  FANIN_TRY(make(events, "/events", event_type.get(), rows_chunk));
  if (H5Fstart_swmr_write(file.get()) < 0) {
    return detail::fail_hdf5(fmt::format("create {}", path));
  }
  return {};
}

// Gives the file its name, which must be free.
Result<> RunFileWriter::Impl::publish(const std::string& hidden) {
  FANIN_TRY(make_durable());
  if (::link(hidden.c_str(), path.c_str()) == 0) {
    ::unlink(hidden.c_str());
  } else if (errno == EEXIST ||
             ::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    return fail_errno(kind_of(errno), fmt::format("create {}", path), errno);
  }
  named = NamedFile(path, descriptor.get());
  expect_marks();
  published = true;
  if (options.commit != CommitMode::synced) return {};
  const int error = detail::synchronize_folder(options.directory);
  if (error == 0) return {};
  return fail_errno(ErrorKind::internal, fmt::format("fsync {}", options.directory), error);
}

// So that a full disk is met before anything is changed, and the file can still end in good order.
Result<> RunFileWriter::Impl::reserve(std::uint64_t growth) {
  if (!options.reserve) return {};
  haddr_t end = 0;
  if (file) {
    const detail::Hdf5Guard guard;
    if (H5Fget_eoa(file.get(), &end) < 0) return detail::fail_hdf5(path);
  }
  const auto needed = end + growth + metadata_reserve(growth);
  if (needed <= reserved) return {};
  int error_number = 0;
  for (const auto target : {needed + reserve_ahead(end), needed}) {
    int outcome = 0;
    do {
      outcome = ::fallocate(descriptor.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(reserved),
                            static_cast<off_t>(target - reserved));
    } while (outcome < 0 && errno == EINTR);
    if (outcome == 0) {
      reserved = target;
      return {};
    }
    error_number = errno;
    if (error_number == EOPNOTSUPP || error_number == ENOSYS) {
      options.reserve = false; // then it is the writes that meet a full disk
      return {};
    }
  }
  return fail_errno(kind_of(error_number), fmt::format("write {}", path), error_number);
}

// What HDF5 has flushed is in the file, and on the disk where that is asked for.
Result<> RunFileWriter::Impl::make_durable() {
  if (const int error_number = channel->drain(); error_number != 0) {
    return fail_errno(kind_of(error_number), fmt::format("write {}", path), error_number);
  }
  if (options.commit != CommitMode::synced) return {};
  if (::fdatasync(descriptor.get()) == 0) return {};
  const int error_number = errno;
  broken = true; // the kernel has forgotten which pages failed
  return fail_errno(kind_of(error_number), fmt::format("fdatasync {}", path), error_number);
}

// Bytes, then what describes them, then the events: readers and crashes see them in this order.
Result<> RunFileWriter::Impl::write_group() {
  const auto put = [&](detail::AppendTable& table, const auto& rows_of_table) {
    const iovec extent{.iov_base =
                           const_cast<void*>(static_cast<const void*>(rows_of_table.data())),
                       .iov_len = rows_of_table.size_bytes()};
    return table.write(descriptor.get(), {&extent, 1}, rows_of_table.size(), false);
  };
  const bool write_behind = options.commit == CommitMode::synced;
  FANIN_TRY(bytes.write(descriptor.get(), rows.extents(), rows.payload_bytes(), write_behind));
  FANIN_TRY(put(fragments, rows.fragments()));
  FANIN_TRY(put(missing, rows.missing()));
  FANIN_TRY(put(gaps, rows.gaps()));
  for (auto* table : {&bytes, &fragments, &missing, &gaps}) FANIN_TRY(table->flush());
  FANIN_TRY(make_durable());
  FANIN_TRY(put(events, rows.events()));
  FANIN_TRY(events.flush());
  return make_durable();
}

bool RunFileWriter::Impl::tables_failed() {
  return std::ranges::any_of(tables(), [](const auto* table) { return table->failed(); });
}

bool RunFileWriter::Impl::close_hdf5() {
  bool good = true;
  for (auto* table : tables()) good = table->close() && good;
  return file.close() && good;
}

// Somebody may cut the file while a group is written. What follows makes it long again: so the ends
// of the two last groups must be there.
void RunFileWriter::Impl::expect_marks() {
  std::array<FileMark, 10> marks{};
  auto next = std::ranges::copy(earlier, marks.begin()).out;
  for (const auto* table : tables()) *next++ = table->mark();
  named.expect(descriptor.get(), marks);
}

// Gives back what was taken from the disk beyond the end of the file.
void RunFileWriter::Impl::release_reserved() {
  struct stat status{};
  if (options.reserve && ::fstat(descriptor.get(), &status) == 0) {
    static_cast<void>(::ftruncate(descriptor.get(), status.st_size));
  }
}

// Leaves the file as a kill would. HDF5 still wants to write what it has in memory, which may be
// half of a group: that goes nowhere.
void RunFileWriter::Impl::abandon() {
  if (!descriptor) return;
  if (channel) channel->cut();
  static_cast<void>(close_hdf5());
  release_reserved();
  if (published && empty() && named.intact()) ::unlink(path.c_str());
  descriptor.reset();
}

RunFileWriter::RunFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFileWriter::~RunFileWriter() = default;

Result<std::unique_ptr<RunFileWriter>> RunFileWriter::create(const RunFileOptions& options,
                                                             std::uint32_t part) {
  auto impl = std::make_unique<Impl>(options);
  FANIN_TRY(impl->open(part));
  return std::unique_ptr<RunFileWriter>(new RunFileWriter(std::move(impl)));
}

Result<> RunFileWriter::set_started(std::int64_t unix_ns) {
  auto& impl = *impl_;
  if (std::exchange(impl.options.started_unix_ns, unix_ns) == unix_ns) return {};
  const detail::Hdf5Guard guard;
  if (detail::write_started(impl.file.get(), unix_ns) &&
      H5Fflush(impl.file.get(), H5F_SCOPE_LOCAL) >= 0) {
    return {};
  }
  impl.broken = true;
  return detail::fail_hdf5(fmt::format("write {}", impl.path));
}

Result<> RunFileWriter::append(std::span<const BuiltBatch* const> group) {
  auto& impl = *impl_;
  FANIN_ASSERT(!impl.broken && impl.descriptor);
  impl.rows.start({.fragments = impl.fragments.rows(),
                   .missing = impl.missing.rows(),
                   .bytes = impl.bytes.rows()});
  for (const auto* batch : group) impl.rows.add(*batch);
  const auto growth = impl.bytes.growth(impl.rows.payload_bytes()) +
                      impl.fragments.growth(impl.rows.fragments().size()) +
                      impl.missing.growth(impl.rows.missing().size()) +
                      impl.gaps.growth(impl.rows.gaps().size()) +
                      impl.events.growth(impl.rows.events().size());
  auto done = growth == 0 ? Result<>{} : impl.reserve(growth);
  if (done) {
    if (!std::exchange(impl.torn, true)) {
      std::ranges::transform(impl.tables(), impl.earlier.begin(), &detail::AppendTable::mark);
    }
    done = impl.write_group();
    impl.expect_marks();
  }
  if (!done) {
    impl.broken = impl.broken || impl.tables_failed() || done.error().kind != ErrorKind::exhausted;
    return done;
  }
  impl.torn = false;
  impl.bytes.commit(impl.rows.payload_bytes());
  impl.fragments.commit(impl.rows.fragments().size());
  impl.missing.commit(impl.rows.missing().size());
  impl.gaps.commit(impl.rows.gaps().size());
  impl.events.commit(impl.rows.events().size());
  return {};
}

Result<> RunFileWriter::close() {
  auto& impl = *impl_;
  if (!impl.descriptor) return {};
  impl.damaged = impl.named.has_name() && !(impl.named.intact() && impl.channel->intact());
  if (impl.broken || impl.torn || impl.damaged) {
    impl.abandon();
    return {};
  }
  const bool good = impl.close_hdf5();
  Result<> done =
      good ? impl.make_durable() : detail::fail_hdf5(fmt::format("close {}", impl.path));
  impl.release_reserved();
  impl.expect_marks();
  impl.damaged = !impl.channel->intact();
  impl.descriptor.reset();
  return done;
}

bool RunFileWriter::broken() const { return impl_->broken; }
bool RunFileWriter::intact() const { return !impl_->damaged && impl_->named.intact(); }
const NamedFile& RunFileWriter::file() const { return impl_->named; }
std::uint64_t RunFileWriter::events() const { return impl_->events.rows(); }
std::uint64_t RunFileWriter::size() const {
  return impl_->bytes.rows() + impl_->events.rows() * sizeof(EventRow) +
         impl_->fragments.rows() * sizeof(FragmentRow) +
         impl_->missing.rows() * sizeof(MissingRow) + impl_->gaps.rows() * sizeof(GapRow);
}

} // namespace fanin::storage
