// SPDX-License-Identifier: Apache-2.0

// Package stage builds, on one Linux machine and as root, the environment of Weir's end-to-end
// tests and its demonstration: several sites joined by a wide-area network that can be slowed, cut
// and healed, real NFS clients, a real etcd and a real S3 store at each site. Everything is a
// process or a namespace of this machine; there are no containers, images or downloads at run time.
//
// # What is there
//
//	site a: namespace <prefix>-a                         namespace <prefix>-router
//	  lan0 (bridge) 10.77.1.2 ... 10.77.1.9                router machine
//	   ├── wan0 ═══════════ veth ══════════ r1 ──────────── vec0 10.77.1.1, netem
//	   ├── g10 ── u10 ── guest 10.77.1.10                   vec1 10.77.2.1, netem ═══ site b
//	   └── processes started with Site.Command              vec2 10.77.3.1, netem ═══ site c
//
// A site is a network namespace. Its processes are ordinary host processes that have entered it.
// Its guests are User-Mode-Linux machines: real Linux kernels, with the kernel's NFS client, that
// run as host processes above a copy-on-write view of the host's file system. They are needed
// because a mount made by the host's own NFS client cannot be killed like a machine, and because
// many host kernels (container hosts, small cloud images) have no NFS client. So guests are always
// User-Mode-Linux, also where the host could mount.
//
// The kernel is Debian's newest where hack/fetch-guest-kernel could fetch it, which catches the
// system calls of its programs by seccomp, and this system's own elsewhere, which does it by ptrace
// and takes twice as long, or where guests need iptables (Config.IPTables).
//
// All User-Mode-Linux kernels are preloaded with a small shared object, xstate/ptrace.c, which the
// stage compiles and caches: without it they panic on processors with a large register state. Each
// runs on one processor: left to move between two, it takes up to eight times as long.
//
// The router forwards between the sites and applies delay, loss and rate with netem. It is a
// namespace of the host where the host's kernel has netem, and a User-Mode-Linux machine elsewhere
// (Config.Router).
//
// # Rules
//
//  1. Every name carries the stage's random prefix, and addresses live in the stage's own
//     namespaces only, so a stage disturbs no other stage and nothing else on the machine.
//  2. A process is the stage's if and only if it is in one of the stage's namespaces. Processes are
//     found to be killed by their namespace, never by a remembered pid, and a namespace is deleted
//     only when it is empty.
//  3. What a stage must undo is recorded below /run/weir-stage before it is done. Down undoes it;
//     Sweep, with which Up begins, undoes it for stages whose owner is gone. Processes also end by
//     themselves when their owner is killed.
//  4. Files below Config.StateDir (logs, data) are the caller's: Down leaves them, unless the stage
//     chose the folder.
//
// Simulated, not real: one machine's disk and clock serve all sites, so a power cut is a killed
// process or machine (its page cache dies with it only for guests), and fsync reaches one shared
// disk.
package stage
