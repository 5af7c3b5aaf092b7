// SPDX-License-Identifier: Apache-2.0

// Package clitest runs weir's commands in tests: on a registry in memory, with gateways that are
// fakes.
package clitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
)

// Manifest is a volume.yaml for two sites, of which one must be fra.
const Manifest = `
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: data}
spec:
  size: 10Gi
  durability: {acknowledge: Sites}
  home: {preferredSites: [fra]}
`

// Time is what the commands' clock shows.
var Time = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)

// Bench runs commands on a registry in memory.
type Bench struct {
	Registry *memory.Client
	Keys     map[string]keyring.SiteKey // by site
	// Self is who calls, and Now when.
	Self pki.Identity
	Now  time.Time

	t    *testing.T
	tree Tree
	dial func(federation.Site, federation.Gateway) (*grpc.ClientConn, error)
}

// Tree makes the commands that a test can run.
type Tree func(sh *cli.Shell, connect access.Connector) []*cobra.Command

// New makes a Bench for the commands of tree.
func New(t *testing.T, tree Tree) *Bench {
	return &Bench{t: t, tree: tree, Registry: memory.New(), Keys: map[string]keyring.SiteKey{}, Now: Time,
		Self: pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "operator"}}
}

// Site registers a site with one gateway, which is alive.
func (b *Bench) Site(name, organization string) federation.Member {
	b.t.Helper()
	k, err := keyring.NewSiteKey()
	if err != nil {
		b.t.Fatal(err)
	}
	b.Keys[name] = k
	g := federation.Gateway{Name: name + "-1", Addr: name + "-1:7400", NFSAddr: "10.0.0.1:2049", Incarnation: "i-" + name}
	s := federation.Site{Name: name, Organization: organization, WrapKey: k.Public(), Gateways: []federation.Gateway{g},
		Lends: []string{federation.LendsToAll}}
	if err := b.Registry.Register(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
	alive := federation.Alive{Gateway: g.Name, Site: name, Incarnation: g.Incarnation}
	if _, err := b.Registry.Heartbeat(b.t.Context(), alive, 10*time.Second); err != nil {
		b.t.Fatal(err)
	}
	return federation.Member{Gateway: g.Name, Site: name, Incarnation: g.Incarnation}
}

// Cluster registers the Kubernetes cluster of a site.
func (b *Bench) Cluster(site, organization, uid string) {
	b.t.Helper()
	s := federation.Site{Name: site, Organization: organization, Region: "eu", Cluster: uid}
	if err := b.Registry.Register(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

// Silent registers a site whose only gateway has no heartbeat.
func (b *Bench) Silent(name, organization string) {
	b.t.Helper()
	g := federation.Gateway{Name: name + "-1", Addr: name + "-1:7400", Incarnation: "i"}
	s := federation.Site{Name: name, Organization: organization, Capacity: 40 << 40, Gateways: []federation.Gateway{g},
		Lends: []string{federation.LendsToAll}}
	if err := b.Registry.Register(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

// Serve runs gateways that are fakes, by name. Commands reach them, and no others.
func (b *Bench) Serve(all map[string]forwardpb.ForwardServer) {
	b.t.Helper()
	listeners := map[string]*bufconn.Listener{}
	for name, f := range all {
		l := bufconn.Listen(1 << 16)
		s := grpc.NewServer()
		forwardpb.RegisterForwardServer(s, f)
		go func() { _ = s.Serve(l) }() // ends with Stop
		b.t.Cleanup(s.Stop)
		listeners[name] = l
	}
	b.dial = func(_ federation.Site, g federation.Gateway) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+g.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				if l := listeners[g.Name]; l != nil {
					return l.DialContext(ctx)
				}
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.UnknownNetworkError("refused " + addr)}
			}))
	}
}

// borrowed is a registry that a command cannot close.
type borrowed struct{ federation.Registry }

func (borrowed) Close() error { return nil }

// Run runs a command line.
func (b *Bench) Run(input string, args ...string) (code int, out, errs string) {
	b.t.Helper()
	return b.run(b.t.Context(), input, args)
}

// RunUntil runs a command line, and ends it as a signal does once until is true.
func (b *Bench) RunUntil(until func() bool, args ...string) (code int, errs string) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	go func() {
		for !until() && machine.Pause(ctx, time.Millisecond) {
		}
		cancel()
	}()
	code, _, errs = b.run(ctx, "", args)
	return code, errs
}

func (b *Bench) run(ctx context.Context, input string, args []string) (code int, out, errs string) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"WEIR_REGISTRY": "https://r:2379", "WEIR_CA": "ca", "WEIR_CERT": "cert", "WEIR_KEY": "key"}
	sh := &cli.Shell{
		In: strings.NewReader(input), Out: &stdout, Err: &stderr, Getenv: func(k string) string { return env[k] }, Version: "of a test",
		Now: func() time.Time { return b.Now }, Boottime: machine.Boottime, Pause: machine.Pause, Random: rand.Reader,
	}
	connect := func(access.Connection) (*access.Client, error) {
		return &access.Client{Registry: borrowed{b.Registry}, Dial: b.dial,
			Say: func(t signed.Takeover) (string, error) { return fmt.Sprintf("%+v", t), nil },
			Said: func(_ federation.Control, began federation.EpochStart) (pki.Identity, time.Time, error) {
				if began.Word == "" {
					return pki.Identity{}, time.Time{}, errors.New("nobody said so")
				}
				return pki.Identity{Federation: "demo", Organization: "SURF", Gateway: began.Word, Part: pki.PartPerson}, Time, nil
			},
			Self: b.Self}, nil
	}
	code = sh.Run(ctx, sh.Root(&cobra.Command{Use: "weir"}, b.tree(sh, connect)...), args)
	return code, stdout.String(), stderr.String()
}

// Want runs a command line. It checks the exit code, and that output or errors contain text.
func (b *Bench) Want(code int, text, input string, args ...string) string {
	b.t.Helper()
	got, out, errs := b.Run(input, args...)
	if got != code || !strings.Contains(out+errs, text) {
		b.t.Fatalf("weir %s: exit %d\n%s%s\nwant exit %d and … %s …", strings.Join(args, " "), got, out, errs, code, text)
	}
	return out
}
