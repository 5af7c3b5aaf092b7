// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// ailing is a pool whose disk can be full, although the pool's own room is not.
type ailing struct {
	cachepool.Pool
	full *atomic.Bool
}

func (p ailing) Volume(uuid string) (cachepool.Dir, error) {
	d, err := p.Pool.Volume(uuid)
	return ailingDir{d, p.full}, err
}

type ailingDir struct {
	cachepool.Dir
	full *atomic.Bool
}

func (d ailingDir) Create(name string) (cachepool.File, error) {
	if d.full.Load() {
		return nil, syscall.ENOSPC
	}
	f, err := d.Dir.Create(name)
	return ailingFile{f, d.full}, err
}

func (d ailingDir) Open(name string) (cachepool.File, error) {
	f, err := d.Dir.Open(name)
	return ailingFile{f, d.full}, err
}

type ailingFile struct {
	cachepool.File
	full *atomic.Bool
}

func (f ailingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

// TestFullDisk: the disk of a home is full, whatever the room of its pool. The home gives its reign
// up, and says why. When there is room again it goes on by itself, in the same process, and nothing
// that was acknowledged is lost.
func TestFullDisk(t *testing.T) {
	for _, sites := range [][]string{{"a"}, {"a", "b"}} {
		t.Run(strings.Join(sites, ""), func(t *testing.T) {
			full := new(atomic.Bool)
			c := newCluster(t, sites...)
			c.pool = func(site string, p cachepool.Pool) cachepool.Pool {
				if site == "a" {
					return ailing{p, full}
				}
				return p
			}
			c.stop("a")
			c.start("a")
			id := c.create("v", manifest("v", len(sites)))
			cl := &client{name: "a"}
			early := file(t, c.router("a", id), cl, "early")
			full.Store(true)
			done := make(chan struct{})
			go func() {
				defer close(done)
				file(t, c.router("a", id), cl, "late") // waits
			}()
			c.until("the copy says that its disk is full", func() error {
				s, _ := c.at("a").copies.State(id)
				if s.Copy != nil || s.Problem == nil || !strings.Contains(s.Problem.Error(), "no space left on device") {
					return errors.New("not yet")
				}
				return nil
			})
			time.Sleep(100 * time.Millisecond)
			full.Store(false)
			<-done
			for _, s := range c.order {
				readable(t, c.router(s, id), early)
			}
			file(t, c.router("a", id), cl, "later")
		})
	}
}

// TestForgottenGatewayRegistersAnew: a gateway that a person forgot too early is there again soon.
func TestForgottenGatewayRegistersAnew(t *testing.T) {
	c := newCluster(t, "a")
	person := c.reg.Client(nil)
	there := func() error {
		sites, err := person.Sites(t.Context())
		if err == nil && (len(sites) != 1 || len(sites[0].Site.Gateways) != 1 || !sites[0].Alive["ga"]) {
			err = errors.New("not yet")
		}
		return err
	}
	c.until("it is registered", there)
	if err := person.RemoveGateway(t.Context(), "a", "ga"); err != nil {
		t.Fatal(err)
	}
	c.until("it is registered anew", there)
}
