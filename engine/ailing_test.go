// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/volume"
)

// TestMetadataOnADiskThatFails: a disk that fails, or is full, ends the work of the engine: it says
// why, once, changes fail, and nothing waits for the disk. It opens again in the same process when
// the disk is well, and has all that was acknowledged.
func TestMetadataOnADiskThatFails(t *testing.T) {
	changes := map[errorfs.OpKind]bool{errorfs.OpFileWrite: true, errorfs.OpFileSync: true, errorfs.OpFileSyncData: true,
		errorfs.OpFileSyncTo: true, errorfs.OpCreate: true, errorfs.OpRename: true}
	for _, c := range []struct {
		file string
		err  error
		want string
	}{
		{".sst", syscall.ENOSPC, "the disk has no room"},
		{".sst", syscall.EIO, "the disk fails"},
		{"MANIFEST", syscall.EIO, "the disk fails"},
		{"", syscall.ENOSPC, "the disk has no room"},
	} {
		t.Run(fmt.Sprint(c.file, c.err), func(t *testing.T) {
			var ill atomic.Bool
			inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
				if ill.Load() && changes[op.Kind] && strings.Contains(op.Path, c.file) {
					return c.err
				}
				return nil
			})
			failed := make(chan error, 10)
			h := newHost(t, func(cfg *Config) {
				cfg.FS = errorfs.Wrap(cfg.FS, inject)
				cfg.Failed = func(why error) { failed <- why }
				cfg.Logger = slog.New(slog.DiscardHandler) // what is given up may log when the test is over
			})
			var files []string
			for i := range 20 {
				files = append(files, fmt.Sprint("file", i))
				newFile(t, h, volume.Root, files[i])
			}
			if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
				t.Fatal(err)
			}
			ill.Store(true)
			if _, err := h.Persist(h.lastEnd()); !errors.Is(err, c.err) {
				t.Errorf("metadata that cannot be written: %v", err)
			}
			if why := <-failed; !errors.Is(why, c.err) || !strings.Contains(why.Error(), c.want) {
				t.Errorf("the engine says %v", why)
			}
			_, err := h.Create(t.Context(), asRoot, volume.Root, "late", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			if err == nil {
				t.Error("it goes on with changes")
			}
			h.journal.setHome(false)
			if err := h.Close(); !errors.Is(err, c.err) {
				t.Errorf("it closes with %v", err)
			}
			open := func() (e *Engine, err error) { // when the changes of before are over
				for e, err = Open(h.cfg); errors.Is(err, failstop.ErrUnderWay); e, err = Open(h.cfg) {
				}
				return e, err
			}
			if _, err := open(); !errors.Is(err, c.err) && c.file != ".sst" { // to open it makes a manifest
				t.Errorf("on the disk that fails it opens with %v", err)
			}
			ill.Store(false)
			if e, err := open(); err != nil || e.Close() != nil {
				t.Errorf("on the disk that is well it opens with %v", err)
			}
			h.open()
			h.lead()
			for _, name := range files {
				if _, err := h.Lookup(t.Context(), asRoot, volume.Root, name); err != nil {
					t.Errorf("file %s: %v", name, err)
				}
			}
			newFile(t, h, volume.Root, "again")
			if len(failed) > 0 {
				t.Errorf("it failed once more: %v", <-failed)
			}
		})
	}
}
