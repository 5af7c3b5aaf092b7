#!/bin/bash
# guest.sh - runs once in a guest that becomes a node, after boot (see guest.go). Its arguments are set in front of it.
set -euo pipefail
pods=$1 own=$2 peer=$3 gateway=$4

modprobe -a loop br_netfilter nf_conntrack_netlink
mount --make-rshared /                  # mountPropagation: Bidirectional
echo 1 >/proc/sys/net/ipv4/ip_forward
# The root is an overlay in memory, on which containers' overlays cannot lie; the disk also outlives the guest, as a node's does.
# What has reached the file of the disk is safe from the guest's death, so there is no need to wait for more (barrier=0).
mkdir -p /n
mount -o loop,barrier=0 /x/disk /n
mkdir -p /n/{kubelet,containerd} /x/pods /var/lib/kubelet /var/log/{pods,containers} /run/weir/bin
mount --bind /n/kubelet /var/lib/kubelet
mount --bind /x/pods /var/log/pods
# The kubelet wants a clock speed, which the kernel of a guest does not tell.
{ sed '/^$/d' /proc/cpuinfo; printf 'cpu MHz\t\t: 2000.000\nphysical id\t: 0\ncore id\t\t: 0\n\n'; } >/run/weir/cpuinfo
mount --bind /run/weir/cpuinfo /proc/cpuinfo

# This kernel's nftables cannot translate addresses; its iptables can. Without ip6tables kube-proxy leaves IPv6 alone, which no
# cluster here has: two that write rules wait for each other's lock, and give up on a busy machine.
for p in iptables iptables-save iptables-restore; do
    ln -s /usr/sbin/xtables-legacy-multi "/run/weir/bin/$p"
done
ip route replace "$peer" via "$gateway"
/run/weir/bin/iptables -t nat -A POSTROUTING -s "$own" ! -d "$pods" -j MASQUERADE
