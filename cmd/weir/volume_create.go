// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/spec"
)

func isNotFound(err error) bool { return errors.Is(err, federation.ErrNotFound) }

func (sh *shell) volumeCreate(n *connection) *cobra.Command {
	var file string
	var wait time.Duration
	c := &cobra.Command{
		Use: "create -f FILE", Short: "Make a volume from a volume.yaml", Args: args(cobra.NoArgs),
		Long: "Makes the volume that FILE (- for the standard input) describes, and waits until it has a home. docs/reference/volume.md describes the file.",
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usage("volume create: no -f: give the path of a volume.yaml, or - for the standard input")
			}
			text, err := sh.readManifest(file)
			if err != nil {
				return err
			}
			m, err := spec.Parse(text)
			if err != nil {
				return inManifest(file, err)
			}
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			v, err := cl.create(c.Context(), m, sh.now(), sh.random)
			if err != nil {
				return err
			}
			if err := sh.say("volume %s created\n  uuid   %s\n  sites  %s\n", v.Name, v.UUID, strings.Join(v.Sites, ", ")); err != nil || wait <= 0 {
				return err
			}
			ctl, err := cl.awaitHome(c.Context(), v, wait)
			if err != nil {
				return err
			}
			return sh.say("  home   %s (site %s), epoch %d\n", ctl.Home.Gateway, ctl.Home.Site, ctl.Epoch)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`FILE` that describes the volume; - is the standard input")
	c.Flags().DurationVar(&wait, "wait", 30*time.Second, "`TIME` to wait until the volume has a home; 0 does not wait")
	return c
}

func (sh *shell) readManifest(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(sh.in)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the volume's description: %w", err)
	}
	return text, nil
}

func inManifest(file string, err error) error {
	many, ok := err.(interface{ Unwrap() []error }) // joined here, not deeper
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	var lines []string
	for _, e := range many.Unwrap() {
		lines = append(lines, file+": "+e.Error())
	}
	return errors.New(strings.Join(lines, "\n      "))
}

// create makes a volume: keyring first, so that no gateway ever finds a volume without keys.
func (c *client) create(ctx context.Context, m spec.VolumeManifest, now time.Time, random io.Reader) (federation.Volume, error) {
	var v federation.Volume
	name := m.Metadata.Name
	if old, _, err := c.registry.FindVolume(ctx, name); err == nil {
		return v, nameTaken(old)
	} else if !isNotFound(err) {
		return v, err
	}
	all, err := c.registry.Sites(ctx)
	if err != nil {
		return v, err
	}
	sites := make([]federation.Site, len(all))
	keys := map[string][]byte{}
	for i, s := range all {
		sites[i] = s.Site
		keys[s.Site.Name] = s.Site.WrapKey
	}
	chosen, err := spec.Place(m, sites)
	if err != nil {
		return v, err
	}
	wrap := map[string][]byte{}
	for _, s := range chosen {
		wrap[s] = keys[s]
	}
	id, err := uuid.NewRandomFromReader(random)
	if err != nil {
		return v, fmt.Errorf("create volume %s: draw a UUID: %w", name, err)
	}
	v = federation.Volume{UUID: id.String(), Name: name, Owner: c.self.Organization, Generation: 1, Spec: m.Spec, Sites: chosen, CreatedAt: now.UTC()}
	ring, _, err := keyring.New(v.UUID, wrap, random)
	if err != nil {
		return v, fmt.Errorf("create volume %s: %w", name, err)
	}
	rev, err := c.registry.PutKeyring(ctx, 0, ring)
	if err != nil {
		return v, fmt.Errorf("create volume %s: %w: nothing was created; try again", name, err)
	}
	_, err = c.registry.CreateVolume(ctx, v)
	if errors.Is(err, federation.ErrUnknown) {
		return v, c.readBack(ctx, v, err)
	}
	if err == nil {
		return v, nil
	}
	// Nobody refers to the keyring; when it can not be removed, it stays as a few unused bytes.
	gone := c.registry.DeleteKeyring(ctx, v.UUID, rev)
	if errors.Is(err, federation.ErrNameTaken) {
		if old, _, ferr := c.registry.FindVolume(ctx, name); ferr == nil {
			err = nameTaken(old)
		}
	}
	return v, errors.Join(err, gone)
}

// readBack finds out whether a volume whose creation was not answered is there.
func (c *client) readBack(ctx context.Context, v federation.Volume, unknown error) error {
	_, _, err := c.registry.GetVolume(ctx, v.UUID)
	switch {
	case err == nil:
		return nil
	case isNotFound(err):
		return fmt.Errorf("%w; it is not there now: look with `weir volume list` before you try again", unknown)
	}
	return errors.Join(unknown, err)
}

func nameTaken(old federation.Volume) error {
	if old.Deleted {
		return fmt.Errorf("create volume %s: %w: a volume of this name (%s) was deleted at %s, and its name is free only when it is purged, which this release does not do: choose another name",
			old.Name, federation.ErrNameTaken, old.UUID, stamp(old.DeletedAt))
	}
	return fmt.Errorf("create volume %s: %w: it is volume %s, of %s: choose another name", old.Name, federation.ErrNameTaken, old.UUID, old.Owner)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

var errHasHome = errors.New("the volume has a home")

// awaitHome waits until a gateway has taken the volume, or says what is missing.
func (c *client) awaitHome(ctx context.Context, v federation.Volume, limit time.Duration) (federation.Control, error) {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var found federation.Control
	err := c.registry.Watch(wait, func(e federation.Event) error {
		if e.Kind == federation.KindControl && e.Name == v.UUID && e.Control != nil {
			found = *e.Control
			return errHasHome
		}
		return nil
	})
	if errors.Is(err, errHasHome) {
		return found, nil
	}
	if ctx.Err() != nil {
		return found, ctx.Err()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return found, err
	}
	sites, err := c.registry.Sites(ctx)
	if err != nil {
		return found, err
	}
	return found, fmt.Errorf("volume %s is created, and has no home after %v: %s", v.Name, limit, missingHome(v, sites))
}

// missingHome says why a volume has no home yet: it begins at the first of its sites.
func missingHome(v federation.Volume, sites []federation.SiteStatus) string {
	if len(v.Sites) == 0 {
		return "it has no sites: delete it, and create another"
	}
	first := v.Sites[0]
	i := slices.IndexFunc(sites, func(s federation.SiteStatus) bool { return s.Site.Name == first })
	if i < 0 {
		return fmt.Sprintf("its first site %s is not registered any more: start a gateway there", first)
	}
	var names []string
	for _, g := range sites[i].Site.Gateways {
		if sites[i].Alive[g.Name] {
			return fmt.Sprintf("gateway %s at its first site %s is alive and has not opened it: `weir status %s` and that gateway's log say why", g.Name, first, v.Name)
		}
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("its first site %s has no gateway: start one there", first)
	}
	return fmt.Sprintf("no gateway of its first site %s is alive (%s): start it", first, strings.Join(names, ", "))
}
