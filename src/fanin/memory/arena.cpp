#include "fanin/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

#if FANIN_HAVE_NUMA
#include <numa.h>
#include <numaif.h>
#endif

namespace fanin::memory {
namespace {

constexpr std::size_t huge_page = 2U << 20;
std::atomic<std::uint64_t> arenas_made = 0;

std::size_t round_up(std::size_t size, std::size_t step) { return (size + step - 1) / step * step; }

// A number out of a file such as /proc/meminfo ("MemAvailable:  123 kB"), after `key`.
std::optional<std::uint64_t> read_number(const char* path, const char* key) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "re"), &std::fclose);
  if (!file) return std::nullopt;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long long value = 0;
    const std::size_t length = std::strlen(key);
    if (std::strncmp(line, key, length) != 0) continue;
    if (std::sscanf(line + length, " %llu", &value) == 1) return value;
  }
  return std::nullopt;
}

// What the host and the control group still give; beyond it the kernel would kill the process on
// first touch instead of reporting an error.
struct Limit {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  const char* name = "";
};

// How the two versions of control groups name things.
struct GroupFiles {
  const char* in_list; // what its line in /proc/self/cgroup has before the path
  const char* root;
  const char* most;
  const char* now;
  const char* cached; // in memory.stat
  const char* shared; // likewise; part of the former
};
constexpr GroupFiles group_versions[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current", "file ", "shmem "},
    {":memory:", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
     "total_cache ", "total_shmem "}};

// The control group of this process as a folder.
std::string control_group(const GroupFiles& files) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> list(std::fopen("/proc/self/cgroup", "re"),
                                                             &std::fclose);
  char line[4096];
  while (list && std::fgets(line, sizeof line, list.get()) != nullptr) {
    const char* const found = std::strstr(line, files.in_list);
    if (found == nullptr) continue;
    const std::string_view path = found + std::strlen(files.in_list);
    const std::string_view name = path.substr(0, path.find('\n'));
    return files.root + std::string(name == "/" ? "" : name);
  }
  return files.root;
}

// A group's limit holds for those within it too.
void lower_to_group(const std::string& group, const GroupFiles& files, Limit& limit) {
  const auto number = [&group](const char* file, const char* key) {
    return read_number((group + file).c_str(), key);
  };
  const auto most = number(files.most, "");
  const auto now = number(files.now, "");
  if (!most || !now) return;
  // The kernel can drop what it has cached of files, but not memory that is shared.
  const std::uint64_t cached = number("/memory.stat", files.cached).value_or(0);
  const std::uint64_t shared = number("/memory.stat", files.shared).value_or(0);
  const std::uint64_t used = *now - std::min(*now, cached - std::min(cached, shared));
  const std::uint64_t left = *most - std::min(*most, used);
  if (left < limit.bytes) limit = {left, "what is left of the control group (memory.max)"};
}

Limit memory_left() {
  Limit limit;
  if (const auto available = read_number("/proc/meminfo", "MemAvailable:")) {
    limit = {*available * 1024, "available memory of this host (MemAvailable)"};
  }
  for (const GroupFiles& files : group_versions) {
    const std::size_t root = std::strlen(files.root);
    for (std::string group = control_group(files); group.size() >= root;
         group.resize(group.rfind('/'))) {
      lower_to_group(group, files, limit);
    }
  }
  return limit;
}

std::string address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(", address space limit (ulimit -v) {}", format_size(limit.rlim_cur));
}

bool on_reserved_huge_pages(const ArenaOptions& options) {
  return options.huge_pages == HugePages::required && !options.reserve_only;
}

std::unexpected<Error> cannot(std::string_view what, std::size_t size, int error) {
  return fail_errno(
      ErrorKind::exhausted,
      fmt::format("arena of {}{}: {}", format_size(size), address_space_limit(), what), error);
}

Result<Descriptor> make_memory_file(std::size_t size, const ArenaOptions& options) {
  rlimit limit{};
  // Beyond it the kernel sends a signal that ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
    return fail(ErrorKind::exhausted,
                fmt::format("shared arena of {}: more than the file size limit, {} (ulimit -f)",
                            format_size(size), format_size(limit.rlim_cur)));
  }
  const unsigned huge = on_reserved_huge_pages(options) ? MFD_HUGETLB : 0U;
  Descriptor file(memfd_create("fanin", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge));
  if (!file) return cannot("memfd_create", size, errno);
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) return cannot("ftruncate", size, errno);
  return file;
}

// From now on its size is what it is, and only who has it mapped already can write.
Result<> seal(const Descriptor& file, std::size_t size) {
  // Kernels before 5.1 do not know the second one.
  (void)fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return cannot("F_ADD_SEALS", size, errno);
  return {};
}

Result<std::byte*> map(std::size_t size, const ArenaOptions& options, const Descriptor& file) {
  int flags = MAP_SHARED;
  if (!file) {
    flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (options.reserve_only) flags |= MAP_NORESERVE;
    if (on_reserved_huge_pages(options)) flags |= MAP_HUGETLB;
  }
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (address == MAP_FAILED) return cannot("mmap", size, errno);
  return static_cast<std::byte*>(address);
}

Result<> check_numa_node(int node) {
#if FANIN_HAVE_NUMA
  if (numa_available() < 0) {
    return fail(ErrorKind::unsupported,
                fmt::format("NUMA node {}: the kernel of this host has no NUMA support", node));
  }
  if (node <= numa_max_node()) return {};
  return fail(ErrorKind::unsupported,
              fmt::format("NUMA node {}: this host has nodes 0 to {}", node, numa_max_node()));
#else
  return fail(ErrorKind::unsupported, fmt::format("NUMA node {}: built without libnuma", node));
#endif
}

Result<> bind_to_node([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size,
                      [[maybe_unused]] int node) {
#if FANIN_HAVE_NUMA
  bitmask* const nodes = numa_allocate_nodemask();
  numa_bitmask_setbit(nodes, static_cast<unsigned>(node));
  const long outcome = mbind(data, size, MPOL_BIND, nodes->maskp, nodes->size + 1, 0);
  const int error = errno;
  numa_bitmask_free(nodes);
  if (outcome != 0) {
    return fail_errno(ErrorKind::unsupported,
                      fmt::format("bind {} to NUMA node {}", format_size(size), node), error);
  }
#endif
  return {};
}

Result<> populate(std::byte* data, std::size_t size) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, size, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) {
    return fail_errno(ErrorKind::exhausted, fmt::format("arena of {}: populate", format_size(size)),
                      errno);
  }
#endif
  for (std::size_t at = 0; at < size; at += 4096) data[at] = std::byte{0}; // kernels before 5.14
  return {};
}

} // namespace

Result<> check_arena(std::size_t size, const ArenaOptions& options) {
  if (options.numa_node >= 0) FANIN_TRY(check_numa_node(options.numa_node));
  if (options.huge_pages == HugePages::required) {
    const auto pages_free = read_number("/proc/meminfo", "HugePages_Free:").value_or(0);
    if (size / huge_page <= pages_free) return {};
    return fail(ErrorKind::exhausted,
                fmt::format("{} on huge pages: {} of them are free, {} needed (raise "
                            "vm.nr_hugepages, or set huge_pages to \"transparent\")",
                            format_size(size), pages_free, size / huge_page));
  }
  const Limit limit = memory_left();
  if (size <= limit.bytes) return {};
  return fail(ErrorKind::exhausted, fmt::format("{} is more than the {}, {}", format_size(size),
                                                limit.name, format_size(limit.bytes)));
}

Result<std::unique_ptr<Arena>> Arena::make(std::size_t size, const ArenaOptions& options) {
  if (size == 0) return fail(ErrorKind::usage, "arena of 0 B");
  if (options.shared && options.reserve_only)
    return fail(ErrorKind::usage, "an arena without memory cannot be shared");
  const bool wants_huge = on_reserved_huge_pages(options) ||
                          (options.huge_pages != HugePages::off && size >= huge_page);
  const std::size_t rounded = round_up(size, wants_huge ? huge_page : 4096);
  if (rounded < size) return fail(ErrorKind::usage, "arena larger than the address space");
  if (!options.reserve_only) FANIN_TRY(check_arena(rounded, options));
  std::unique_ptr<Arena> arena(new Arena);
  arena->id_ = ++arenas_made;
  if (options.shared) arena->descriptor_ = FANIN_TRY(make_memory_file(rounded, options));
  std::byte* const data = FANIN_TRY(map(rounded, options, arena->descriptor_));
  arena->data_ = data;
  arena->size_ = rounded;
  if (options.shared) FANIN_TRY(seal(arena->descriptor_, rounded));
  if (wants_huge && options.huge_pages == HugePages::transparent) {
    (void)madvise(data, rounded, MADV_HUGEPAGE);
  }
  if (options.numa_node >= 0 && !options.reserve_only)
    FANIN_TRY(bind_to_node(data, rounded, options.numa_node));
  if (!options.reserve_only) FANIN_TRY(populate(data, rounded));
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

} // namespace fanin::memory
