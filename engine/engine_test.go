// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/volumetest"
)

var (
	testID  = volume.ID{0: 1, 15: 7}
	testKey = [32]byte{1, 2, 3}
	asRoot  = volume.Request{}
)

// host is one gateway's engine with a journal and a disk that can crash.
type host struct {
	testing.TB
	fs      *vfs.MemFS
	journal *memJournal
	epoch   uint64
	config  func(*Config)
	wrap    func(*memJournal) journal.Journal // nil: the engine uses the journal itself
	damaged bool                              // by the test: the metadata are not checked in the end
	*Engine
}

// works returns an error if the engine has failed.
func (h *host) works() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

func newHost(t testing.TB, config func(*Config)) *host {
	return newHostOver(t, config, nil)
}

// newHostOver returns a host whose engine uses wrap(journal) as its journal.
func newHostOver(t testing.TB, config func(*Config), wrap func(*memJournal) journal.Journal) *host {
	h := &host{TB: t, fs: vfs.NewCrashableMem(), journal: newMemJournal(), config: config, wrap: wrap}
	h.open()
	h.lead()
	t.Cleanup(func() {
		if !t.Failed() && !h.damaged && h.works() == nil {
			if err := health(h.Engine, nil); err != nil {
				t.Error(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// open opens the engine on the disk as it is, and replays the log.
func (h *host) open() {
	h.Helper()
	var j journal.Journal = h.journal
	if h.wrap != nil {
		j = h.wrap(h.journal)
	}
	h.Engine = openEngine(h, h.fs, j, h.config)
	h.journal.mu.Lock()
	h.journal.machine = h.Engine
	h.journal.mu.Unlock()
	h.replay()
}

func openEngine(t testing.TB, fs vfs.FS, j journal.Journal, config func(*Config)) *Engine {
	t.Helper()
	cfg := Config{
		ID: testID, FS: fs, Dir: "meta", DataKey: testKey, Rand: rand.Reader,
		Now: time.Now, Clock: clockwork.NewRealClock(),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		RootMode: 0o777, Tuning: Tuning{ReadAhead: DefaultReadAhead},
	}
	if config != nil {
		config(&cfg)
	}
	e, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.Attach(j)
	return e
}

// replay has the engine ingest what the log has after the applied position.
func (h *host) replay() {
	h.Helper()
	entries, commit := h.journal.after(h.Applied())
	if err := h.Ingest(entries); err != nil {
		h.Fatal(err)
	}
	h.Committed(commit)
}

// lead makes the host home in the next epoch.
func (h *host) lead() {
	h.Helper()
	h.journal.setHome(true)
	h.epoch++
	if err := h.Lead(context.Background(), h.epoch); err != nil {
		h.Fatal(err)
	}
}

// crash loses what is not durable on the disk, opens the engine again and leads.
func (h *host) crash() {
	h.Helper()
	disk := h.fs.CrashClone(vfs.CrashCloneCfg{})
	h.journal.setHome(false)
	if err := h.Close(); err != nil {
		h.Fatal(err)
	}
	h.fs = disk
	h.open()
	h.lead()
}

func TestVolume(t *testing.T) {
	volumetest.Run(t, func(t *testing.T) volumetest.Subject {
		var h *host
		return volumetest.Subject{
			Open: func() volume.Volume {
				h = newHost(t, nil)
				return withLocks(h.Engine)
			},
			Restart: func() volume.Volume {
				h.crash()
				return withLocks(h.Engine)
			},
			SetReadOnly: func(on bool) { h.setReadOnly(on) },
			Tidy: func() {
				if _, err := h.Clean(context.Background()); err != nil {
					t.Error(err)
				}
			},
			Trash: func() volume.Volume {
				return withLocks(newHost(t, func(c *Config) { c.Tuning.Trash = time.Hour }).Engine)
			},
			Small: func(bytes uint64) volume.Volume {
				return withLocks(newHost(t, func(c *Config) { c.Bytes = bytes }).Engine)
			},
		}
	})
}
