// SPDX-License-Identifier: Apache-2.0

package volumecmd

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

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/spec"
)

func createCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var file, from string
	var wait time.Duration
	c := &cobra.Command{
		Use: "create -f FILE", Short: "Make a volume from a volume.yaml", Args: cli.Args(cobra.NoArgs),
		Long: "Makes the volume that FILE describes, and waits until it has a home. FILE - is the standard input.\n" +
			"docs/reference/volume.md describes the file.\n\n" +
			"With --from the volume begins with what another volume has now, or had in a snapshot. Its home\n" +
			"copies that into it; until it has all, nobody can use it. The command waits, and tells how far it\n" +
			"is. Typed again, it goes on where it was interrupted: do that, since only it notes that all is\n" +
			"there, and has the snapshot dropped that it took. The other volume has to belong to your\n" +
			"organization, and to no Kubernetes cluster.",
		Example: "  weir volume create -f volume.yaml\n  weir volume create -f copy.yaml --from data\n" +
			"  weir volume create -f copy.yaml --from data@before-upgrade",
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usage("volume create: no -f: give the path of a volume.yaml, or - for the standard input")
			}
			text, err := readManifest(sh.In, file)
			if err != nil {
				return err
			}
			m, err := spec.Parse(text)
			if err != nil {
				return inManifest(file, err)
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			if c.Flags().Changed("from") {
				if !c.Flags().Changed("wait") {
					wait = fillWait
				}
				return createFrom(c.Context(), sh, cl, m, from, wait)
			}
			v, err := create(c.Context(), cl, m, nil, sh.Now(), sh.Random)
			if err != nil {
				return err
			}
			return created(c.Context(), sh, cl, v, wait)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`FILE` that describes the volume; - is the standard input")
	c.Flags().StringVar(&from, "from", "", "`VOLUME` or VOLUME@SNAPSHOT that it begins with")
	c.Flags().DurationVar(&wait, "wait", 30*time.Second,
		"`TIME` to wait until the volume has a home, and with --from, all, for which it is "+fillWait.String()+
			" if not said; 0 does not wait")
	return c
}

// created says what was made, and waits until it has a home.
func created(ctx context.Context, sh *cli.Shell, cl *access.Client, v federation.Volume, wait time.Duration) error {
	err := sh.Say("volume %s created\n  uuid   %s\n  sites  %s\n", v.Name, v.UUID, strings.Join(marked(v.Sites, v.Blind), ", "))
	if err != nil || wait <= 0 {
		return err
	}
	ctl, err := awaitHome(ctx, cl, v, wait)
	if err != nil {
		return err
	}
	return sh.Say("  home   %s (site %s), epoch %d\n", ctl.Home.Gateway, ctl.Home.Site, ctl.Epoch)
}

func readManifest(in io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the volume's description: %w", err)
	}
	return text, nil
}

func inManifest(file string, err error) error {
	many, ok := err.(interface{ Unwrap() []error }) // only what spec.Parse joined
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	var lines []string
	for _, e := range many.Unwrap() {
		lines = append(lines, file+": "+e.Error())
	}
	return errors.New(strings.Join(lines, "\n      "))
}

// create makes a volume. begins says what the volume with a UUID begins with; nil: with nothing.
func create(
	ctx context.Context, cl *access.Client, m spec.VolumeManifest, begins func(uuid string) (*snapshots.Source, error), now time.Time,
	random io.Reader,
) (federation.Volume, error) {
	var v federation.Volume
	name := m.Metadata.Name
	if old, _, err := cl.Registry.FindVolume(ctx, name); err == nil {
		return v, nameTaken(old)
	} else if !errors.Is(err, federation.ErrNotFound) {
		return v, err
	}
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return v, err
	}
	sites := make([]federation.Site, len(all))
	keys := map[string][]byte{}
	for i, s := range all {
		sites[i] = s.Site
		keys[s.Site.Name] = s.Site.WrapKey
	}
	chosen, err := spec.Place(m, cl.Self.Organization, sites)
	if err != nil {
		return v, err
	}
	wrap := map[string][]byte{}
	var blind []string
	for _, s := range chosen {
		i := slices.IndexFunc(sites, func(x federation.Site) bool { return x.Name == s })
		if spec.Blind(m.Spec.Replication, cl.Self.Organization, s, sites[i].Organization) {
			blind = append(blind, s)
		} else {
			wrap[s] = keys[s]
		}
	}
	id, err := uuid.NewRandomFromReader(random)
	if err != nil {
		return v, fmt.Errorf("create volume %s: draw a UUID: %w", name, err)
	}
	v = federation.Volume{UUID: id.String(), Name: name, Owner: cl.Self.Organization, Generation: 1,
		Spec: m.Spec, Sites: chosen, Blind: blind, CreatedAt: now.UTC()}
	ring, _, err := keyring.New(v.UUID, wrap, random)
	if err != nil {
		return v, fmt.Errorf("create volume %s: %w", name, err)
	}
	if begins != nil {
		if v.Source, err = begins(v.UUID); err != nil {
			return v, err
		}
	}
	_, err = cl.Registry.CreateVolume(ctx, v, ring)
	switch {
	case errors.Is(err, federation.ErrUnknown):
		return v, readBack(ctx, cl, v, err)
	case errors.Is(err, federation.ErrUnavailable):
		err = fmt.Errorf("create volume %s: %w: nothing was created; try again", name, err)
	case errors.Is(err, federation.ErrNameTaken):
		if old, _, ferr := cl.Registry.FindVolume(ctx, name); ferr == nil {
			err = nameTaken(old)
		}
	}
	return v, err
}

// readBack looks for a volume after the answer to its creation was lost.
func readBack(ctx context.Context, cl *access.Client, v federation.Volume, unknown error) error {
	_, _, err := cl.Registry.GetVolume(ctx, v.UUID)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, federation.ErrNotFound):
		return fmt.Errorf("%w; it is not there now: look with `weir volume list` before you try again", unknown)
	}
	return errors.Join(unknown, err)
}

func nameTaken(old federation.Volume) error {
	if old.Deleted {
		return fmt.Errorf("create volume %s: %w: a volume of this name (%s) was deleted at %s, "+
			"and its name is free only when it is purged, after %s: wait, choose another name, or see `weir volume purge`",
			old.Name, federation.ErrNameTaken, old.UUID, cli.Stamp(old.DeletedAt), cli.Stamp(old.PurgeAt()))
	}
	return fmt.Errorf("create volume %s: %w: it is volume %s, of %s: choose another name", old.Name, federation.ErrNameTaken, old.UUID,
		old.Owner)
}

var errHasHome = errors.New("the volume has a home")

// awaitHome waits until a gateway is the volume's home. After limit its error says what is missing.
func awaitHome(ctx context.Context, cl *access.Client, v federation.Volume, limit time.Duration) (federation.Control, error) {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var found federation.Control
	err := cl.Registry.Watch(wait, func(e federation.Event) error {
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
	sites, err := cl.Registry.Sites(ctx)
	if err != nil {
		return found, err
	}
	return found, fmt.Errorf("volume %s is created, and has no home after %v: %s", v.Name, limit, access.MissingHome(v, sites))
}
