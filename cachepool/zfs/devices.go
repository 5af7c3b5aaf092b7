// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
)

// Layout is how a ZFS pool keeps data on its devices.
type Layout string

// Layouts. Without redundancy, what a device loses comes back from the volume's other copies.
const (
	Stripe Layout = "Stripe" // no redundancy
	Mirror Layout = "Mirror" // each device has everything; two or more
	Raidz  Layout = "Raidz"  // one device may be lost; three or more
	Raidz2 Layout = "Raidz2" // two may be lost; four or more
	Raidz3 Layout = "Raidz3" // three may be lost; five or more
)

// least is how many devices a layout needs.
var least = map[Layout]int{Stripe: 1, Mirror: 2, Raidz: 3, Raidz2: 4, Raidz3: 5}

// Devices is what a ZFS pool is made of: paths of block devices, best those in /dev/disk/by-id,
// which mean the same device after a restart.
type Devices struct {
	Data   []string
	Layout Layout // "": Stripe
	Cache  []string
	Log    []string
	// MirrorLog: each log device has everything. Without it they share the work, and the loss of
	// one together with the machine's power loses what only it had.
	MirrorLog bool
	// Mountpoint of the new pool; "": /NAME.
	Mountpoint string
}

// leastSize of a device, in bytes: ZFS takes none that is smaller.
const leastSize = 64 << 20

// bring sees that a ZFS pool is imported: it imports one that is there, unless another machine may
// use it, or makes it of devices.
func (t Tools) bring(ctx context.Context, name string, devices *Devices, log *slog.Logger) error {
	_, err := t.zpool(ctx, "list", "-H", "-o", "name", name)
	if !errors.Is(err, ErrNoPool) {
		return err
	}
	err = t.bringIn(ctx, name, devices)
	if errors.Is(err, ErrNoPool) && devices != nil {
		err = t.bringIn(ctx, name, nil) // it may be on other devices
	}
	if !errors.Is(err, ErrNoPool) {
		if err == nil {
			log.Info("ZFS pool is imported", "pool", name)
		}
		return err
	}
	if devices == nil {
		return fmt.Errorf("%w: %s: make it with `zpool create`, import it with `zpool import`, or give its devices", ErrNoPool, name)
	}
	args, err := devices.arguments(name)
	if err != nil {
		return err
	}
	if err := t.checkDevices(ctx, devices); err != nil {
		return err
	}
	if _, err := t.zpool(ctx, args...); err != nil {
		return fmt.Errorf("make ZFS pool %s: %w", name, err)
	}
	log.Info("ZFS pool is made", "pool", name, "layout", devices.Layout, "data", devices.Data, "cache", devices.Cache, "log", devices.Log)
	return nil
}

// bringIn imports a ZFS pool. ErrNoPool: there is none of the name.
func (t Tools) bringIn(ctx context.Context, name string, devices *Devices) error {
	args := []string{"import"}
	if devices != nil {
		var folders []string
		for _, d := range slices.Concat(devices.Data, devices.Log) {
			folders = append(folders, filepath.Dir(d))
		}
		slices.Sort(folders)
		for _, f := range slices.Compact(folders) {
			args = append(args, "-d", f)
		}
	}
	_, err := t.zpool(ctx, append(args, name)...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoPool), strings.Contains(err.Error(), "no pools available"):
		return fmt.Errorf("%s: %w", name, ErrNoPool)
	case strings.Contains(err.Error(), "in use from") || strings.Contains(err.Error(), "other system") ||
		strings.Contains(err.Error(), "imported by another") || strings.Contains(err.Error(), "previously in use"):
		return fmt.Errorf("%w: see that no other machine has it, and run `zpool import -f %s` here, as a person: %w",
			ErrElsewhere, name, err)
	}
	return fmt.Errorf("import ZFS pool %s: attach all its devices, or see `zpool import`: %w", name, err)
}

// arguments returns those of zpool that make the pool.
func (d *Devices) arguments(name string) ([]string, error) {
	layout := d.Layout
	if layout == "" {
		layout = Stripe
	}
	n, known := least[layout]
	switch {
	case !known:
		return nil, fmt.Errorf("devices.layout: %q: %w: use Stripe, Mirror, Raidz, Raidz2 or Raidz3", layout, cachepool.ErrInvalid)
	case len(d.Data) < n:
		return nil, fmt.Errorf("devices.data: %d devices: %w: layout %s needs at least %d", len(d.Data), cachepool.ErrInvalid, layout, n)
	case d.MirrorLog && len(d.Log) < 2:
		return nil, fmt.Errorf("devices.log: %d devices: %w: a mirror needs at least two", len(d.Log), cachepool.ErrInvalid)
	}
	args := []string{"create"}
	if d.Mountpoint != "" {
		args = append(args, "-m", d.Mountpoint)
	}
	args = append(args, name)
	if layout != Stripe {
		args = append(args, strings.ToLower(string(layout)))
	}
	args = append(args, d.Data...)
	if len(d.Log) > 0 {
		args = append(args, "log")
		if d.MirrorLog {
			args = append(args, "mirror")
		}
		args = append(args, d.Log...)
	}
	if len(d.Cache) > 0 {
		args = append(append(args, "cache"), d.Cache...)
	}
	return args, nil
}

// checkDevices returns all reasons not to make a ZFS pool of devices. It changes nothing.
func (t Tools) checkDevices(ctx context.Context, d *Devices) error {
	var all error
	field := map[uint64]string{} // by device number
	for _, class := range []struct {
		name  string
		paths []string
	}{{"data", d.Data}, {"log", d.Log}, {"cache", d.Cache}} {
		for i, path := range class.paths {
			where := fmt.Sprintf("devices.%s[%d]", class.name, i)
			number, err := t.checkDevice(ctx, path)
			if other := field[number]; err == nil && other != "" {
				err = fmt.Errorf("%w: it is %s too: name each device once", cachepool.ErrInvalid, other)
			}
			if err != nil {
				all = errors.Join(all, fmt.Errorf("%s: %s: %w", where, path, err))
				continue
			}
			field[number] = where
		}
	}
	return all
}

// checkDevice returns a device's number, or why no pool can be made of it.
func (t Tools) checkDevice(ctx context.Context, path string) (number uint64, err error) {
	if !filepath.IsAbs(path) {
		return 0, fmt.Errorf("%w: it is no absolute path: use one in /dev/disk/by-id", cachepool.ErrInvalid)
	}
	here := filepath.Join(t.Root, path)
	var st unix.Stat_t
	if err := unix.Stat(here, &st); err != nil {
		return 0, fmt.Errorf("%w: see `lsblk` for the devices of this machine", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("%w: it is no block device: see `lsblk` for those of this machine", cachepool.ErrInvalid)
	}
	// The kernel refuses O_EXCL for what is mounted, or part of something that is used.
	f, err := os.OpenFile(here, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return 0, fmt.Errorf("%w: it is mounted, or part of something that is: see `lsblk %s`, or name another", ErrInUse, path)
	}
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, 2)
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	if size < leastSize {
		return 0, fmt.Errorf("%w: it has %d bytes: ZFS needs at least %d", cachepool.ErrInvalid, size, leastSize)
	}
	return st.Rdev, t.empty(ctx, path)
}

// empty returns an error that says what a device holds.
func (t Tools) empty(ctx context.Context, path string) error {
	out, err := t.run(ctx, "blkid", []string{"-p", "-o", "export", path})
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return nil // it knows nothing of it
	}
	if err != nil {
		return fmt.Errorf("see whether it holds something: %w", err)
	}
	var what []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if slices.Contains([]string{"LABEL", "TYPE", "PTTYPE"}, name) {
			what = append(what, strings.ToLower(name)+" "+value)
		}
	}
	if len(what) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it holds %s: name another device; or, if nobody needs that any more, run `wipefs -a %s`, as a person",
		ErrInUse, strings.Join(what, ", "), path)
}
