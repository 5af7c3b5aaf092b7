// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// IdentifierSetter returns a function that writes the identity of the kernel's NFS client to a
// file. On a node the file is /sys/fs/nfs/net/nfs_client/identifier. Without the file, the function
// asks the kernel to load its NFS client first. The client uses the identity from its next
// connection on.
func IdentifierSetter(file string) func(id string) error {
	return func(id string) error {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			fd, err := unix.Fsopen("nfs4", unix.FSOPEN_CLOEXEC)
			if err != nil {
				return fmt.Errorf("the node's kernel has no NFS client: install the module nfsv4 of its kernel: fsopen nfs4: %w", err)
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		now, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the NFS client's identity: %w", err)
		}
		if strings.TrimSpace(string(now)) == id {
			return nil
		}
		// Without O_CREATE: the kernel would not read a file that this process creates.
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return fmt.Errorf("write the NFS client's identity: %w", err)
		}
		_, err = f.WriteString(id)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write the NFS client's identity %q to %s: %w", id, file, err)
		}
		return nil
	}
}
