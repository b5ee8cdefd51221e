#include "fanin/storage/detail/hdf5.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/core.h>

#include "fanin/storage/layout.hpp"

namespace fanin::storage::detail {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

bool library_is_threadsafe() {
  static const bool safe = [] {
    hbool_t answer = false;
    return H5is_library_threadsafe(&answer) >= 0 && answer;
  }();
  return safe;
}

struct Gist {
  std::string outermost; // what HDF5 was asked to do
  std::string innermost; // why it could not
};

herr_t collect(unsigned number, const H5E_error2_t* error, void* data) {
  auto& gist = *static_cast<Gist*>(data);
  const std::string text = error->desc == nullptr ? "" : error->desc;
  if (number == 0) gist.outermost = text;
  gist.innermost = text;
  return 0;
}

} // namespace

Hdf5Guard::Hdf5Guard() {
  // All files are closed before the program ends. A plug-in that calls exit() must not make HDF5
  // close those that another thread writes.
  [[maybe_unused]] static const herr_t left_open_at_exit = H5dont_atexit();
  if (!library_is_threadsafe()) lock_ = std::unique_lock(library_mutex());
  thread_local bool quiet = false; // the error stack belongs to the thread
  if (!quiet) quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
}

bool Handle::close() {
  if (id_ < 0) return true;
  const Hdf5Guard guard;
  return close_(std::exchange(id_, H5I_INVALID_HID)) >= 0;
}

std::string hdf5_error() {
  Gist gist;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &gist);
  H5Eclear2(H5E_DEFAULT);
  if (gist.outermost.empty()) return "HDF5 gives no reason";
  auto text = gist.outermost == gist.innermost
                  ? gist.outermost
                  : fmt::format("{}: {}", gist.outermost, gist.innermost);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::unexpected<Error> fail_hdf5(std::string_view what) {
  const auto reason = hdf5_error();
  const bool full = reason.find("errno = 28") != std::string::npos || // ENOSPC
                    reason.find("errno = 122") != std::string::npos;  // EDQUOT
  return fail(full ? ErrorKind::exhausted : ErrorKind::internal,
              fmt::format("{}: {}", what, reason));
}

std::optional<std::uint64_t> rows_of(hid_t space) {
  hsize_t rows = 0;
  if (H5Sget_simple_extent_ndims(space) != 1 ||
      H5Sget_simple_extent_dims(space, &rows, nullptr) != 1)
    return std::nullopt;
  return rows;
}

Result<Handle> open_dataset(hid_t file, const char* name) {
  H5L_info_t link{};
  if (H5Lget_info(file, name, &link, H5P_DEFAULT) < 0)
    return fail(ErrorKind::malformed, hdf5_error());
  const auto elsewhere = fail(ErrorKind::malformed, "its bytes are in another file");
  if (link.type != H5L_TYPE_HARD) return elsewhere;
  Handle dataset{H5Dopen2(file, name, H5P_DEFAULT), H5Dclose};
  if (!dataset) return fail(ErrorKind::malformed, hdf5_error());
  const Handle layout{H5Dget_create_plist(dataset.get()), H5Pclose};
  if (!layout || H5Pget_layout(layout.get()) == H5D_VIRTUAL ||
      H5Pget_external_count(layout.get()) != 0)
    return elsewhere;
  return dataset;
}

Handle compound_type(std::size_t size, std::initializer_list<Field> fields) {
  Handle type{H5Tcreate(H5T_COMPOUND, size), H5Tclose};
  for (const Field& field : fields) H5Tinsert(type.get(), field.name, field.offset, field.type);
  return type;
}

Handle event_row_type() {
  return compound_type(sizeof(EventRow),
                       {{"event", offsetof(EventRow, event), H5T_STD_U64LE},
                        {"first_fragment", offsetof(EventRow, first_fragment), H5T_STD_U64LE},
                        {"first_missing", offsetof(EventRow, first_missing), H5T_STD_U64LE},
                        {"size", offsetof(EventRow, size), H5T_STD_U64LE},
                        {"fragment_count", offsetof(EventRow, fragment_count), H5T_STD_U32LE},
                        {"missing_count", offsetof(EventRow, missing_count), H5T_STD_U32LE},
                        {"flags", offsetof(EventRow, flags), H5T_STD_U32LE},
                        {"incarnation", offsetof(EventRow, incarnation), H5T_STD_U32LE},
                        {"attempt", offsetof(EventRow, attempt), H5T_STD_U16LE},
                        {"node", offsetof(EventRow, node), H5T_STD_U16LE},
                        {"streams", offsetof(EventRow, streams), H5T_STD_U32LE},
                        {"time_unix_ns", offsetof(EventRow, time_unix_ns), H5T_STD_I64LE}});
}

Handle fragment_row_type() {
  return compound_type(sizeof(FragmentRow),
                       {{"event", offsetof(FragmentRow, event), H5T_STD_U64LE},
                        {"offset", offsetof(FragmentRow, offset), H5T_STD_U64LE},
                        {"source", offsetof(FragmentRow, source), H5T_STD_U32LE},
                        {"size", offsetof(FragmentRow, size), H5T_STD_U32LE},
                        {"crc32c", offsetof(FragmentRow, crc32c), H5T_STD_U32LE},
                        {"flags", offsetof(FragmentRow, flags), H5T_STD_U16LE},
                        {"attempt", offsetof(FragmentRow, attempt), H5T_STD_U16LE}});
}

Handle missing_row_type() {
  return compound_type(sizeof(MissingRow),
                       {{"event", offsetof(MissingRow, event), H5T_STD_U64LE},
                        {"source", offsetof(MissingRow, source), H5T_STD_U32LE},
                        {"reason", offsetof(MissingRow, reason), H5T_STD_U32LE}});
}

Handle gap_row_type() {
  return compound_type(sizeof(GapRow), {{"first", offsetof(GapRow, first), H5T_STD_U64LE},
                                        {"end", offsetof(GapRow, end), H5T_STD_U64LE}});
}

Handle stream_source_row_type() {
  return compound_type(sizeof(StreamSourceRow),
                       {{"stream", offsetof(StreamSourceRow, stream), H5T_STD_U32LE},
                        {"source", offsetof(StreamSourceRow, source), H5T_STD_U32LE}});
}

Handle boolean_type() {
  Handle type{H5Tenum_create(H5T_STD_I8LE), H5Tclose};
  for (const auto& [name, value] : {std::pair{"FALSE", std::int8_t{0}}, {"TRUE", std::int8_t{1}}})
    H5Tenum_insert(type.get(), name, &value);
  return type;
}

Handle fixed_string_type(std::size_t size) {
  Handle type{H5Tcopy(H5T_C_S1), H5Tclose};
  H5Tset_size(type.get(), std::max<std::size_t>(size, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

} // namespace fanin::storage::detail
