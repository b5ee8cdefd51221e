#!/usr/bin/env bash
# Runs COMMAND in a small virtual machine whose kernel has RDMA in software (SoftRoCE, rdma_rxe), and ends with its
# status. The machine sees this one's file system, read-only, with changes kept in its memory; what COMMAND leaves in
# $OUT is in FOLDER afterwards.
#   usage: tools/rdma_guest.sh [--out FOLDER] COMMAND...
# It is Debian's stock kernel under plain emulation: no RDMA, no KVM and no rights are needed here, and nothing that
# it measures says anything of speed. In the guest: rxe0 on 10.9.0.1, rxe1 on 10.8.0.1, lo; ulimit -l unlimited.
# Environment: MEM (MiB, 2048), CPUS (2), NUMA=1 (two NUMA nodes, a processor and half of the memory each),
# LIMIT (seconds, 1200).
set -euo pipefail
out=""
if [[ ${1:-} == --out ]]; then out=$(realpath "$2"); shift 2; fi
[[ $# -gt 0 ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
for tool in qemu-system-x86_64 busybox cpio rdma; do
  command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
    { echo "rdma_guest: $tool is missing; ./dev install-packages --rdma installs it" >&2; exit 2; }
done

# --- the kernel: Debian's current one, unpacked and not installed ---
package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
[[ -n $package ]] || { echo "rdma_guest: no linux-image-amd64 in the package lists; run apt-get update" >&2; exit 2; }
version=${package#linux-image-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fanin-rdma-guest
if [[ ! -e $cache/$version/ok ]]; then
  rm -rf "${cache:?}/$version"
  mkdir -p "$cache/$version"
  (cd "$cache/$version" && apt-get -qq download -o APT::Sandbox::User=root "$package" && dpkg -x ./*.deb . && rm ./*.deb && touch ok)
fi

# --- the first file system: busybox, the modules in the order in which they need each other, /init ---
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root"/{bin,proc,sys,dev,modules} "$work/out"
cp "$(command -v busybox)" "$work/root/bin/"
python3 - "$cache/$version/lib/modules/$version" "$work/root" <<'END'
import os, re, shutil, sys
tree, root = sys.argv[1:]
found = {name[:-3].replace("-", "_"): os.path.join(folder, name)
         for folder, _, names in os.walk(tree) for name in names if name.endswith(".ko")}
order = []
def need(name):
    path = found.get(name.replace("-", "_"))
    if path is None or path in order:  # built in, or there already
        return
    for depends in re.findall(rb"\0depends=([^\0]*)", open(path, "rb").read()):
        for one in filter(None, depends.decode().split(",")):
            need(one)
    order.append(path)
for name in ("virtio_pci", "9pnet_virtio", "9p", "overlay", "veth", "dummy", "crc32_generic", "crc32c_generic",
             "crc32_pclmul", "rdma_rxe", "rdma_ucm", "ib_uverbs"):
    need(name)
for path in order:
    shutil.copy(path, root + "/modules/")
with open(root + "/order", "w") as file:
    file.writelines(os.path.basename(path) + "\n" for path in order)
END
cat >"$work/root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /order); do insmod /modules/$module || echo "insmod $module failed"; done
mkdir -p /host /changes /new /out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 out /out
mount -t tmpfs tmpfs /changes; mkdir /changes/upper /changes/work
mount -t overlay overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work /new
mount -t proc proc /new/proc; mount -t sysfs sys /new/sys; mount --bind /dev /new/dev
mkdir -p /new/dev/shm /new/dev/pts /new/run/out
mount -t tmpfs tmpfs /new/dev/shm; mount -t tmpfs tmpfs /new/tmp; mount --bind /out /new/run/out
chmod 666 /dev/infiniband/* /dev/null
chroot /new /bin/bash -c '
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root OUT=/run/out/files
  ulimit -l unlimited
  ip link set lo up
  ip link add d0 type dummy; ip address add 10.9.0.1/24 dev d0; ip link set d0 up
  ip link add v0 type veth peer name v1; ip address add 10.8.0.1/24 dev v0; ip link set v0 up; ip link set v1 up
  rdma link add rxe0 type rxe netdev d0; rdma link add rxe1 type rxe netdev v0
  chmod 666 /dev/infiniband/*
  cd "$(sed -n 1p /run/out/command)"; bash -c "$(sed 1d /run/out/command)"'
echo $? >/out/status
poweroff -f
END
chmod +x "$work/root/init"
mkdir "$work/out/files"
printf '%s\n%s\n' "$PWD" "$*" >"$work/out/command"
(cd "$work/root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

# --- the machine ---
memory=${MEM:-2048}
numa=()
if [[ ${NUMA:-0} == 1 ]]; then
  numa=(-object "memory-backend-ram,id=m0,size=$((memory / 2))M" -object "memory-backend-ram,id=m1,size=$((memory / 2))M"
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1)
fi
timeout "${LIMIT:-1200}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp "${CPUS:-2}" -m "$memory" "${numa[@]}" \
  -display none -serial stdio -monitor none -no-reboot -nic none \
  -kernel "$cache/$version/boot/vmlinuz-$version" -initrd "$work/initrd" -append 'console=ttyS0 panic=-1 quiet' \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$work/out,mount_tag=out,security_model=none" </dev/null || true
[[ -z $out ]] || { mkdir -p "$out" && cp -r "$work/out/files/." "$out/"; }
exit "$(cat "$work/out/status" 2>/dev/null || echo 125)"
