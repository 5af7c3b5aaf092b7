// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc/stats"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/gateway/borrowing"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/meters"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/track"
)

// Config has what a gateway needs. Run closes nothing of it but the listeners.
type Config struct {
	Federation   string
	Organization string
	Region       string
	Site         string
	Name         string // of this gateway, unique in the federation
	Labels       map[string]string
	Capacity     federation.Bytes // that the site gives to copies; 0: not limited
	Lends        []string         // see federation.Site

	Addr    string // host:port where other gateways reach GRPC
	NFSAddr string // host:port where clients of this site reach NFS
	GRPC    net.Listener
	NFS     net.Listener

	Registry    federation.Registry
	Pools       []pools.Pool // open, the main one first
	FS          vfs.FS       // that the pools' directories are on
	StateDir    string       // for records of NFS clients and what is borrowed; durable, of this gateway alone
	Store       store.Store
	StoreInfo   federation.SiteStore
	Borrow      func(terms paper.Terms, endpoint string) (borrowing.Room, error) // nil: at the host's store
	Credentials *pki.Credentials
	SiteKey     keyring.SiteKey

	Promise    time.Duration // default 3 s
	Former     time.Duration // the longest Promise of this gateway's earlier processes; 0: none is known
	Heartbeat  time.Duration // default a fifteenth of Promise
	Alone      time.Duration // see clocks.Alone, which is the default
	Lease      time.Duration // of NFS clients, default 60 s
	AliveFor   time.Duration // time to live of the registry's heartbeat, default 10 s
	CacheBytes int64         // of plaintext blocks in memory, default 128 MiB; half as much more is for metadata
	Memory     int64         // of what NFS clients have and ask for, default 128 MiB

	Clock       func() time.Duration // monotonic, counts suspend
	Timers      clockwork.Clock      // for waits and intervals
	Now         func() time.Time
	Rand        io.Reader
	Logger      *slog.Logger
	Health      *Health         // updated as the gateway becomes ready; nil: nobody asks
	Meters      *meters.Meters  // nil: nobody reads them
	Slow        time.Duration   // operations of clients that take as long are logged; 0: none is
	Tracer      Tracer          // nil: nobody follows requests
	Checkpoints checkpoints.Due // when they are made; zero: as usual
	ScrubEvery  time.Duration   // how often it is looked what to read again; zero: as usual
	// Diagnostics are files of the process for a support bundle, besides the gateway's own.
	Diagnostics []Diagnostic
}

// Tracer follows the requests of clients.
type Tracer interface {
	track.Tracer
	// Client and Server follow them from one gateway to another.
	Client() stats.Handler
	Server() stats.Handler
}

func (c *Config) setDefaults() {
	if c.Promise == 0 {
		c.Promise = 3 * time.Second
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.Promise / 15
	}
	if c.Lease == 0 {
		c.Lease = 60 * time.Second
	}
	if c.AliveFor == 0 {
		c.AliveFor = 10 * time.Second
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 128 << 20
	}
	if c.Memory == 0 {
		c.Memory = 128 << 20
	}
	if c.Health == nil {
		c.Health = new(Health)
	}
	if c.Meters == nil {
		c.Meters = meters.New(c.Now)
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
}
