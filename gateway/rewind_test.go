// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/volume"
)

// TestRestoredRegistry: the registry goes back to a backup of before a volume moved and another was
// made. All volumes are served, also after all gateways started again, and no copy is removed.
// After the reconciliation volumes move again.
func TestRestoredRegistry(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			t.Parallel() // both wait much
			c := newCluster(t, "a", "b", "c", "d")
			cl := &client{name: "a"}
			moved := c.createAt("moved", manifest("moved", 2), []string{"a", "b"})
			admit := func(id string) { // a site without a copy serves admitted clients only
				for _, s := range c.order {
					c.admit(s, id)
				}
			}
			admit(moved)
			files := map[string][]volume.Handle{moved: {file(t, c.router("a", moved), cl, "before")}}
			backup := c.reg.Backup()
			c.change(moved, func(v *federation.Volume) { v.Sites = []string{"c", "d"} })
			c.dropped("a", moved)
			c.dropped("b", moved)
			files[moved] = append(files[moved], file(t, c.router("a", moved), cl, "after"))
			made := c.createAt("made", manifest("made", 2), []string{"b", "a"})
			admit(made)
			files[made] = []volume.Handle{file(t, c.router("c", made), cl, "f")}
			c.until("every gateway knows the newest records", func() error {
				for _, s := range c.order {
					for id, home := range map[string]string{moved: "gc gd", made: "gb"} {
						if h, _ := c.at(s).view.Home(id); h == "" || !strings.Contains(home, h) {
							return fmt.Errorf("%s: home of %s is %q", s, id, h)
						}
					}
				}
				return nil
			})

			if restart {
				for _, s := range c.order {
					c.stop(s)
				}
			}
			c.reg.Restore(backup)
			if restart {
				for _, s := range c.order {
					c.start(s)
				}
			}
			served := func(when string) {
				for id := range files {
					for _, s := range c.order {
						r := c.router(s, id)
						files[id] = append(files[id], file(t, r, cl, when+s))
						for _, h := range files[id] {
							readable(t, r, h)
						}
					}
				}
			}
			served("refused ")
			person := c.reg.Client(nil)
			defer func() { _ = person.Close() }()
			var w federation.Rewind
			c.until("all gateways have testified", func() (err error) {
				if w, err = person.ReadRewind(context.Background()); err == nil && (len(w.Notices) == 0 || len(w.Missing()) > 0) {
					err = fmt.Errorf("notices of %d, missing %v", len(w.Notices), w.Missing())
				}
				return err
			})
			if _, err := person.CreateVolume(context.Background(), federation.Volume{UUID: "x", Name: "x", Owner: "o"},
				federation.Keyring{}); !errors.Is(err,
				federation.ErrRewound) {
				t.Errorf("a volume is made meanwhile: %v", err)
			}
			time.Sleep(5 * time.Second) // in which a copy would be removed that is not to be there
			served("still refused ")
			for _, s := range []string{"c", "d"} {
				c.segments(s, moved)
			}

			c.until("it is reconciled", func() error {
				w, err := person.ReadRewind(context.Background())
				if err != nil {
					return err
				}
				plan, missing, err := w.Plan()
				if err != nil || len(missing) > 0 {
					return fmt.Errorf("missing %v, %w", missing, err)
				}
				return person.Reconcile(context.Background(), w, plan, federation.Reconciliation{ID: "1"})
			})
			c.until("all gateways believe the registry", func() error {
				for _, s := range c.order {
					if err := c.at(s).cfg.Registry.Trusted(); err != nil {
						return fmt.Errorf("%s: %w", s, err)
					}
				}
				return nil
			})
			served("reconciled ")
			c.change(moved, func(v *federation.Volume) { v.Sites = []string{"b", "a"} })
			c.change(made, func(v *federation.Volume) { v.Sites = []string{"d", "c"} })
			for _, s := range []string{"c", "d"} {
				c.dropped(s, moved)
			}
			for _, s := range []string{"a", "b"} {
				c.dropped(s, made)
			}
			served("moved ")
		})
	}
}
