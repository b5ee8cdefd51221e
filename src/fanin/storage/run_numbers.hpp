// The numbers of runs. A run gets one above all that were given before in the folder of its files.
// The highest is kept in a file there, so that run files which are moved or deleted free none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"

namespace fanin::storage {

// Thread: any.
class RunNumbers {
public:
  // Of runs whose files are in these folders. Where a folder has no file of numbers yet, the run
  // files and manifests in it count; where there is one, they count as well. `log` is told when
  // another process is waited for, and the wait ends when `is_to_end` says that this one is to end.
  explicit RunNumbers(std::vector<std::string> folders, LogFunction log = {},
                      std::function<bool()> is_to_end = {})
      : folders_(std::move(folders)), log_(std::move(log)), is_to_end_(std::move(is_to_end)) {}

  // What reserve() would give. Takes no number, and makes no folder. Errors: usage (`wanted` is not
  // above all that were given), exhausted (there is no higher one), and those of reading: refused,
  // malformed.
  [[nodiscard]] FANIN_INTERNAL_API Result<RunNumber> next(std::optional<RunNumber> wanted) const;

  // Gives the caller alone a number: `wanted`, or the next one. Makes the folders. Blocks until it
  // is on disk in all of them, and while other processes reserve there. Errors: those of next();
  // refused, exhausted where it cannot be written. Then the caller has no number.
  [[nodiscard]] FANIN_INTERNAL_API Result<RunNumber> reserve(std::optional<RunNumber> wanted) const;

private:
  std::vector<std::string> folders_;
  LogFunction log_;
  std::function<bool()> is_to_end_;
};

} // namespace fanin::storage
