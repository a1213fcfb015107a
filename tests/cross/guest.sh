#!/usr/bin/env bash
# Runs programs of a build on an x86 processor that this machine does not have: Bochs emulates the
# whole machine, down to AVX-512 and AMX, and boots Debian's kernel with nothing but busybox and the
# programs named. No disk, no network, no display; the console is a serial line into a file.
#
# usage: guest.sh [-v] MODEL BUILD LINE...
#
#   MODEL   a processor of `bochs --help cpu`, such as corei7_icelake_u
#   BUILD   a build of this tree, or of another worktree of it. Words of the lines that are programs
#           in BUILD/bin go into the guest with their libraries; so do tests/nano and tests/golden
#   LINE    a shell command, such as 'TACIT_CPU=avx512 test_kernels'; it fails by its exit status
#   -v      what the lines print is shown, not only the end of what failed
#
# Prints "passed (seconds of the guest's clock): LINE" or "FAILED ..."; of a guest that did not end
# by itself one "FAILED" and the end of the emulator's log. Exits 1 if anything failed. Environment:
#   BOCHS           a folder that another Bochs than Debian's is installed in
#   GUEST_SECONDS   when to give up (default 1800)
set -euo pipefail
verbose=
[ "${1:-}" != -v ] || { verbose=yes && shift; }
[ $# -ge 3 ] || { sed -n '6,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
model=$1 build=$(cd "$2" && pwd)
shift 2
root=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
seconds=${GUEST_SECONDS:-1800}
millions=50 # of instructions in a second of the guest's clock: a slow machine's
work=$(mktemp -d)
emulation=
trap '[ -z "$emulation" ] || kill "$emulation" 2>/dev/null; rm -rf "$work"' EXIT

# What the kernel is to do without (numbers of its cpufeatures.h). FSRM: where no firmware has
# switched fast strings on, the memmove of Linux 6.1 overwrites all memory. Debian's Bochs 2.7 gives
# sizes for XSAVEC, XSAVES and protection keys that do not fit, and the kernel would go without AVX.
# It also has a debugger built in, which waits for a command, and only displays that want one.
absent=580
emulator=bochs share=/usr/share/bochs display=term options=(-rc "$work/commands")
if [ -z "${BOCHS:-}" ]; then
    absent=580,321,323,515,516
else
    emulator=$BOCHS/bin/bochs share=$BOCHS/share/bochs display=nogui options=()
fi
command -v "$emulator" >/dev/null || {
    echo "guest.sh: no '$emulator' is installed: \`./run cross\` installs Debian's, or BOCHS names the folder of another." >&2
    exit 2
}
"$emulator" --help cpu 2>&1 | grep -x "$model" >/dev/null || {
    echo "guest.sh: $emulator has no processor '$model' (it lists: $emulator --help cpu)." >&2
    echo "AMX needs a Bochs 3 configured with --enable-evex --enable-amx --with-nogui, and mended as" \
        "tests/README.md says: name the folder that it is installed in in BOCHS" >&2
    exit 2
}

# Debian's kernel for virtual machines is the quickest to boot. Taken apart, never installed.
kernel() {
    local folder=$here/build/cross/kernel name
    [ -e "$folder/vmlinuz" ] && return
    name=$(apt-cache depends linux-image-cloud-amd64 |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    rm -rf "$folder" && mkdir -p "$folder"
    (cd "$folder" && apt-get download -qq "$name" 2>/dev/null && dpkg-deb -x ./*.deb .) || {
        echo "guest.sh: no kernel '$name' to be had: is apt's list fresh (apt-get update)?" >&2
        exit 2
    }
    cp "$folder"/boot/vmlinuz-* "$folder/vmlinuz"
    rm -rf "${folder:?}"/{boot,lib,usr} "$folder"/*.deb
}

# put FILE...: into the guest at the same path, links followed.
put() {
    local file
    for file in "$@"; do
        mkdir -p "$work/guest$(dirname "$file")"
        cp -rL "$file" "$work/guest$(dirname "$file")/"
    done
}

programs() {
    local word
    for word in $(printf '%s\n' "$@" | tr -cs 'A-Za-z0-9_./-' ' '); do
        [ -f "$build/bin/$word" ] || continue
        put "$build/bin/$word"
        ldd "$build/bin/$word" | grep -o '/[^ ]*'
    done | sort -u | while read -r library; do put "$library"; done
}

filesystem() {
    mkdir -p "$work"/guest/{bin,proc,sys,dev,tmp}
    cp /bin/busybox "$work/guest/bin/"
    programs "$@"
    put "$root/tests/nano" "$root/tests/golden"
    printf '%s\n' "$@" >"$work/guest/lines"
    cat >"$work/guest/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:$build/bin HOME=/tmp
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
cd $root
while read -r line; do
    read -r start _ </proc/uptime
    status=0
    sh -c "\$line" >/tmp/log 2>&1 </dev/null || status=\$?
    read -r end _ </proc/uptime
    [ -z "$verbose" ] || cat /tmp/log
    if [ \$status = 0 ]; then
        echo "passed (\$((\${end%.*} - \${start%.*})) s): \$line"
    else
        echo "FAILED (status \$status): \$line"
        tail -15 /tmp/log | sed 's/^/    /'
    fi
done </lines
echo "the guest is done"
poweroff -f
INIT
    chmod +x "$work/guest/init"
    (cd "$work/guest" && find . | cpio -o -H newc --quiet -R 0:0) | gzip -1 >"$work/iso/initrd"
}

# The clock is the emulator's count of instructions; nothing is probed or waited for that is known.
parameters() {
    echo console=ttyS0,115200 quiet loglevel=0 panic=-1 reboot=t clearcpuid=$absent \
        tsc_early_khz=$((millions * 1000)) tsc=reliable nowatchdog random.trust_cpu=on \
        nokaslr mitigations=off lsm=lockdown audit=0 cryptomgr.notests
}

disc() {
    mkdir -p "$work/iso"
    cp "$here/build/cross/kernel/vmlinuz" /usr/lib/ISOLINUX/isolinux.bin \
        /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/iso/"
    filesystem "$@"
    cat >"$work/iso/isolinux.cfg" <<CFG
DEFAULT tacit
PROMPT 0
LABEL tacit
  KERNEL /vmlinuz
  INITRD /initrd
  APPEND $(parameters)
CFG
    xorriso -as mkisofs -quiet -o "$work/guest.iso" -b isolinux.bin -c boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$work/iso" 2>"$work/xorriso.log"
}

machine() {
    cat <<RC
config_interface: textconfig
display_library: $display
cpu: model=$model, count=1, ips=$((millions * 1000000)), reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file=$share/BIOS-bochs-latest
vgaromimage: file=$(find "$share" -name VGABIOS-lgpl-latest -o -name VGABIOS-lgpl-latest.bin)
boot: cdrom
ata0-master: type=cdrom, path=$work/guest.iso, status=inserted
com1: enabled=1, mode=file, dev=$work/console
clock: sync=none
log: $work/bochs.log
panic: action=fatal
error: action=report
info: action=report
RC
}

# drain PROCESS: the display in a terminal opens one of its own; it would stand still for ever once
# nobody had read what it shows.
drain() {
    local terminal
    while kill -0 "$1" 2>/dev/null; do
        terminal=$(sed -n 's/.*connected to screen "\(.*\)".*/\1/p' "$work/display" 2>/dev/null || true)
        if [ -n "$terminal" ]; then
            stty -F "$terminal" raw -echo 2>/dev/null || true
            cat "$terminal" >/dev/null 2>&1 || true
        fi
        sleep 0.2
    done
}

kernel
disc "$@"
machine >"$work/bochsrc"
: >"$work/console"
echo c >"$work/commands"
status=0
timeout "$seconds" "$emulator" -q -f "$work/bochsrc" "${options[@]}" \
    </dev/null >"$work/display" 2>&1 &
emulation=$!
[ "$display" != term ] || drain "$emulation"
wait "$emulation" || status=$?
emulation=
tr -d '\r' <"$work/console" | grep -v '^the guest is done$' || true
if ! grep -q '^the guest is done' "$work/console"; then
    echo "FAILED: the guest ended early (status $status; 124: more than $seconds s)"
    tail -5 "$work/bochs.log" | sed 's/^/    /'
    exit 1
fi
! grep -q '^FAILED' "$work/console"
