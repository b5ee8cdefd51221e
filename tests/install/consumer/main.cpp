#include <cstdio>

#include <fanin/storage/run_file_reader.hpp>
#include <fanin/version.hpp>

int main() {
  const auto commit = fanin::version_commit();
  std::printf("fanin %s (%.*s)\n", fanin::version.data(), static_cast<int>(commit.size()),
              commit.data());
  const auto opened = fanin::storage::RunFileReader::open("/nowhere/run000001_bu0_i1_0001.h5");
  return commit.empty() || opened || opened.error().kind != fanin::ErrorKind::not_found ? 1 : 0;
}
