// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// receiveBuffer is the receive buffer, in bytes, of a machine's network interface. The default of
// 208 KiB holds three large frames: with it, packets are lost in every burst, and a TCP stream over
// 20 ms falls from 100 to 10 MB/s. Senders' windows limit how much of it is used.
const receiveBuffer = 32 << 20

// growReceiveBuffers enlarges the buffers of the packet sockets that another process, a
// User-Mode-Linux kernel, reads frames from. That kernel has no option for it, so this process
// duplicates its descriptors (pidfd_getfd(2)).
func growReceiveBuffers(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(link))
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if errors.Is(err, unix.EBADF) { // closed since
			continue
		}
		if err != nil {
			return fmt.Errorf("borrow descriptor %d of process %d: %w", n, pid, err)
		}
		err = growReceiveBuffer(fd)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("enlarge receive buffer of process %d: %w", pid, err)
		}
	}
	return nil
}

// growReceiveBuffer enlarges the buffer of a packet socket that takes all protocols. The machine's
// other packet sockets only send, and what they receive is never read.
func growReceiveBuffer(fd int) error {
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if ll, ok := addr.(*unix.SockaddrLinklayer); !ok || ll.Protocol != bigEndian(unix.ETH_P_ALL) {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
}

// bigEndian converts a 16-bit number to network byte order on this (little-endian) machine.
func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }
