#!/usr/bin/env bash
# Installs a build into a folder of its own and uses it from there, as a user would: the command runs, a program and
# every example with a CMakeLists.txt build against find_package(fanin) with warnings as errors.
#   usage: tests/install/run.sh BUILD_DIR
source "$(dirname "$0")/common.sh"
build=$(cd "$1" && pwd)
prefix=$work/prefix

say "installing $build"
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
# moved after the installation: nothing may depend on where it was
mv "$prefix" "$work/moved"; prefix=$work/moved

if [[ -x $prefix/bin/fanin ]]; then
  say "the installed command: $("$prefix/bin/fanin" --version | head -1)"
fi

say "the documents"
(cd "$source_dir" && find README.md docs -name '*.md') | while read -r document; do
  [[ -e $prefix/share/doc/fanin/$document ]] || { echo "$document is not installed"; exit 1; }
done

say "the programs of the examples"
(cd "$source_dir" && find examples -type f -perm -u+x) | while read -r program; do
  [[ -x $prefix/share/fanin/$program ]] || { echo "$program is not executable where it is installed"; exit 1; }
done

say "every installed header, without the source tree"
(cd "$prefix/include" && find fanin -name '*.hpp' | sort | sed 's/.*/#include "&"/') >"$work/headers.cpp"
"${CXX:-c++}" -std=c++23 -fsyntax-only -I "$prefix/include" "$work/headers.cpp"

say "a program of one's own"
build_project consumer "$source_dir/tests/install/consumer" "$prefix"
"$work/consumer/consumer"
if [[ -x $work/consumer/conformance ]]; then
  say "a transport of one's own against the installed suite"
  "$work/consumer/conformance" --gtest_brief=1
fi

say "the message sockets alone, without the event builder"
for component in fanin_net fanin_net_dev; do
  cmake --install "$build" --prefix "$work/sockets" --component "$component" >"$work/install.log"
done
cp -r "$source_dir/examples/sockets" "$work/source-net"
build_project net "$work/source-net" "$work/sockets"
bash "$work/source-net/check.sh" "$work/sockets" "$work/net"

failed=0
for list in "$source_dir"/examples/*/CMakeLists.txt; do
  [[ -e $list ]] || continue
  folder=$(dirname "$list"); name=$(basename "$folder")
  say "example $name"
  # copied out of the tree, so that it finds nothing there by accident
  cp -r "$folder" "$work/source-$name"
  build_project "$name" "$work/source-$name" "$prefix" || { failed=1; continue; }
  # an example may say how it is tried: check.sh PREFIX BUILD_DIR
  if [[ -e $work/source-$name/check.sh ]]; then
    bash "$work/source-$name/check.sh" "$prefix" "$work/$name" || failed=1
  fi
done

[[ $failed == 0 ]] && say "passed"
exit $failed
