// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestACopyWhoseDiskWentBackIsRefused: a member's folder goes back to an earlier state, watermark
// and all, so nothing on its pool tells. The home refuses it. It is kept aside, begins anew, and
// counts again when it has everything.
func TestACopyWhoseDiskWentBackIsRefused(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 10*time.Second, "a", "b") // long, so that b cannot take over on a busy machine
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	early := file(t, c.router("a", id), cl, "early")
	c.stop("b")
	folder, before := filepath.Dir(c.segments("b", id)[0]), filepath.Join(t.TempDir(), "before")
	if err := os.CopyFS(before, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	c.start("b")
	late := file(t, c.router("a", id), cl, "late") // waits until b has it
	c.stop("b")
	if err := errors.Join(os.RemoveAll(folder), os.CopyFS(folder, os.DirFS(before))); err != nil {
		t.Fatal(err)
	}
	c.start("b")
	c.until("the copy that lost something is kept aside, and b has a new one", func() error {
		if len(c.at("b").copies.Salvaged(id)) == 0 || c.at("b").copies.Copy(id) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	file(t, c.router("a", id), cl, "later") // waits until b counts again
	for _, s := range c.order {
		readable(t, c.router(s, id), early)
		readable(t, c.router(s, id), late)
	}
}
