#!/bin/bash
# host.sh - pid 1 of a site's host node, in mount and pid namespaces of its own (see host.go, which starts it).
# Sets up what a booted machine has, tells so with $state/ready, and from then on only reaps orphans. All of the node ends with it.
set -euo pipefail
state=$1 cgroup=$2 pods=$3 own=$4

mount --make-rprivate /                 # nothing below reaches this machine's own mounts
mount -t proc proc /proc
# The kubelet would write these, for the whole machine, if they had other values: it is shown files that have the right ones.
mkdir -p "$state/sysctl"
for kv in kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1 vm/panic_on_oom=0; do
    file=$state/sysctl/${kv##*/}
    file=${file%=*}
    echo "${kv#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${kv%=*}"
done
mount --make-rshared /                  # mountPropagation: Bidirectional
for d in lib log; do
    mkdir -p "$state/$d" "$state/$d.work"
    mount -t overlay "$d" -o "lowerdir=/var/$d,upperdir=$state/$d,workdir=$state/$d.work" "/var/$d"
done
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock /run/weir "$state"/{kubelet,containerd,pods} /var/lib/kubelet /var/log/{pods,containers}
mount --bind "$state/kubelet" /var/lib/kubelet
mount --bind "$state/pods" /var/log/pods

# Pods live below one cgroup, which must be there.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$cgroup"
else
    for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do mkdir -p "/sys/fs/cgroup/$c/$cgroup"; done
    for f in cpuset.cpus cpuset.mems; do cat "/sys/fs/cgroup/cpuset/$f" >"/sys/fs/cgroup/cpuset/$cgroup/$f"; done
fi

# The network namespace is the site's: after a power cut there are still rules and the bridge of the life before.
nft flush ruleset
ip link del cni0 2>/dev/null || :
# Packets between pods of one bridge pass kube-proxy's rules too, else the answer of a Service's pod goes past them. On the site's
# own bridge, lan0, that would only cost time.
[ ! -e /proc/sys/net/bridge ] || echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
ip link add cni0 type bridge nf_call_iptables 1
echo 1 >/proc/sys/net/ipv4/ip_forward
# Other sites know the node, not its pods.
nft "table ip e2e { chain postrouting { type nat hook postrouting priority srcnat; ip saddr $own ip daddr != $pods masquerade; }; }"

: >"$state/ready"
while :; do
    sleep 3600 &
    wait
done
