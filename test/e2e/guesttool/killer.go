// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killer waits until the number of NFS mounts at paths that contain match differs, and then kills,
// by SIGKILL, the process whose command line begins with words: the kernel has done what that asked
// for, and that has told nobody. The kernel tells of each change (proc(5), /proc/pid/mounts).
func killer(match, words, armed string) error {
	pid, err := processOf(words)
	if err != nil {
		return err
	}
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return err
	}
	before, err := matching(mounts, match)
	if err != nil {
		return err
	}
	if err := os.WriteFile(armed, nil, 0o644); err != nil {
		return err
	}
	for end := time.Now().Add(3 * time.Minute); ; {
		wait := []unix.PollFd{{Fd: int32(mounts.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(wait, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a change of mounts: %w", err)
		}
		now, err := matching(mounts, match)
		if err != nil {
			return err
		}
		if now != before {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill %q, process %d: %w", words, pid, err)
			}
			fmt.Println("killed", pid)
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d NFS mounts at paths with %q, all the time", now, match)
		}
	}
}

// matching counts the NFS mounts at paths that contain match.
func matching(mounts *os.File, match string) (n int, err error) {
	if _, err := mounts.Seek(0, 0); err != nil {
		return 0, err
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(mounts); err != nil {
		return 0, err
	}
	for line := range strings.Lines(text.String()) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "nfs4" && strings.Contains(f[1], match) {
			n++
		}
	}
	return n, nil
}

// processOf is the process whose command line begins with words; it is waited for.
func processOf(words string) (int, error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		all, err := os.ReadDir("/proc")
		if err != nil {
			return 0, err
		}
		for _, e := range all {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			line, err := os.ReadFile(path.Join("/proc", e.Name(), "cmdline"))
			if err == nil && strings.HasPrefix(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), words+" ") {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no process %q", words)
}
