// SPDX-License-Identifier: Apache-2.0

// Package access reaches a federation for a command: its registry, and its gateways, with the
// certificate of the person or process that calls.
package access

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
)

// Connection says how to reach a federation. Flags come first, then the environment, then a file.
type Connection struct {
	Registry      []string // URLs
	CA, Cert, Key string   // paths
	Federation    string   // empty: the certificate's
	Config        string   // path
	Site          string   // of the file; a default for --site
	SiteKey       string   // of the file: path
	NoRegistry    bool     // the command needs none
}

// Client is what a person's command works with. It is safe for concurrent use.
type Client struct {
	Registry federation.Registry
	Self     pki.Identity // of the caller's certificate
	// Credentials are the caller's.
	Credentials *pki.Credentials
	// Say is the caller's word for a takeover by force, and Said is whose and of when one is.
	Say  func(signed.Takeover) (string, error)
	Said func(is federation.Control, began federation.EpochStart) (pki.Identity, time.Time, error)
	// Dial makes a connection to a gateway, whose certificate must be that gateway's.
	Dial func(federation.Site, federation.Gateway) (*grpc.ClientConn, error)
}

// Close closes the registry. An error is ignored, since the command is over.
func (c *Client) Close() { _ = c.Registry.Close() }

// Connector opens a Client. The caller closes it. Package main uses Connect, tests use others.
type Connector func(Connection) (*Client, error)

// Opener has the flags of a person's command, and opens its Client.
type Opener struct {
	Connection
	getenv  func(string) string
	connect Connector
}

// NewOpener makes the Opener of a command, or of a group of commands.
func NewOpener(getenv func(string) string, connect Connector) *Opener {
	return &Opener{getenv: getenv, connect: connect}
}

// Open completes the connection and opens it. The caller closes the client.
func (o *Opener) Open() (*Client, error) {
	if err := o.Complete(o.getenv); err != nil {
		return nil, err
	}
	return o.connect(o.Connection)
}

// Flags adds the connection's flags to c and the commands below it.
func (n *Connection) Flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringSliceVar(&n.Registry, "registry", nil, "`URL`s of the registry's members [WEIR_REGISTRY]")
	f.StringVar(&n.CA, "ca", "", "`FILE` with the authority's certificate [WEIR_CA]")
	f.StringVar(&n.Cert, "cert", "", "`FILE` with your certificate [WEIR_CERT]")
	f.StringVar(&n.Key, "key", "", "`FILE` with its key [WEIR_KEY]")
	f.StringVar(&n.Federation, "federation", "", "federation's `NAME`, by default the certificate's [WEIR_FEDERATION]")
	f.StringVar(&n.Config, "config", "", "`FILE` that has registry, tls, federation and site, such as a gateway's [WEIR_CONFIG]")
}

// Alone completes the connection for a command that asks nobody, and has no certificate: it needs
// the authorities' file only.
func (o *Opener) Alone() error {
	if err := o.fill(o.getenv); err != nil {
		return err
	}
	if o.CA == "" {
		return cli.Usage("it is not known whom to trust: give --ca (WEIR_CA), the file ca.crt of the federation")
	}
	return nil
}

// fill fills the fields that no flag has set.
func (n *Connection) fill(getenv func(string) string) error {
	n.Config = cmp.Or(n.Config, getenv("WEIR_CONFIG"))
	var file config.Config
	if n.Config != "" {
		var err error
		if file, err = config.Read(n.Config); err != nil {
			return err
		}
	}
	if env := getenv("WEIR_REGISTRY"); len(n.Registry) == 0 && env != "" {
		for e := range strings.SplitSeq(env, ",") {
			n.Registry = append(n.Registry, strings.TrimSpace(e))
		}
	}
	if len(n.Registry) == 0 {
		n.Registry = file.Registry.Endpoints
	}
	n.CA = cmp.Or(n.CA, getenv("WEIR_CA"), file.TLS.CA)
	n.Cert = cmp.Or(n.Cert, getenv("WEIR_CERT"), file.TLS.Cert)
	n.Key = cmp.Or(n.Key, getenv("WEIR_KEY"), file.TLS.Key)
	n.Federation = cmp.Or(n.Federation, getenv("WEIR_FEDERATION"), file.Federation)
	n.Site, n.SiteKey = file.Site, file.SiteKey
	return nil
}

// Complete fills the fields that no flag has set, and returns a cli.UsageError when one is missing.
func (n *Connection) Complete(getenv func(string) string) error {
	if err := n.fill(getenv); err != nil {
		return err
	}
	var missing []string
	registry := strings.Join(n.Registry, "")
	if n.NoRegistry {
		registry = "none"
	}
	for _, f := range [][2]string{
		{"--registry (WEIR_REGISTRY)", registry}, {"--ca (WEIR_CA)", n.CA}, {"--cert (WEIR_CERT)", n.Cert}, {"--key (WEIR_KEY)", n.Key},
	} {
		if f[1] == "" {
			missing = append(missing, f[0])
		}
	}
	if len(missing) > 0 {
		return cli.Usage("it is not known how to reach the federation: give %s, or --config FILE (WEIR_CONFIG) that has registry and tls",
			strings.Join(missing, ", "))
	}
	if n.NoRegistry {
		return nil
	}
	var p config.Problems
	config.CheckEndpoints(&p, "--registry", n.Registry)
	if len(p) > 0 {
		return &cli.UsageError{Err: errors.Join(p...)}
	}
	return nil
}

// electionTime is how long a person's command waits for an answer of the registry: as long as its
// members need to elect a leader, also when they do not agree at once.
const electionTime = 15 * time.Second

// Connect reads the certificate and opens the registry. Nothing is dialed before the first call.
func Connect(n Connection, now func() time.Time) (*Client, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: n.CA, Cert: n.Cert, Key: n.Key}, now)
	if err != nil {
		return nil, err
	}
	id := creds.Identity()
	if n.Federation != "" && n.Federation != id.Federation {
		return nil, fmt.Errorf("connect to federation %q: certificate %s is of federation %q: "+
			"give the certificate of that federation, or leave --federation out", n.Federation, n.Cert, id.Federation)
	}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: n.Registry, Federation: id.Federation,
		TLS: RegistryTLS(n.Registry, creds), Transport: Kept(creds), CallTimeout: electionTime, Seal: signed.New(creds, nil, nil)})
	if err != nil {
		return nil, err
	}
	seal := signed.New(creds, nil, nil)
	said := func(is federation.Control, began federation.EpochStart) (pki.Identity, time.Time, error) {
		t, who, at, err := seal.Said(began.Word)
		if err == nil && (t.Volume != is.Volume || t.Epoch >= began.Epoch || began.Epoch == is.Epoch && t.Gateway != is.Home.Gateway) {
			err = fmt.Errorf("what %s said is about another takeover", who)
		}
		return who, at, err
	}
	return &Client{Registry: registry, Self: id, Credentials: creds, Say: seal.Say, Said: said, Dial: trusting(registry, creds)}, nil
}

// Kept makes the credentials of connections to the registry that end when a charter does not allow
// their server any more.
func Kept(creds *pki.Credentials) func(*tls.Config) credentials.TransportCredentials {
	return func(cfg *tls.Config) credentials.TransportCredentials { return transport.Client(creds, cfg) }
}

// RegistryTLS configures TLS towards the registry: nil when its URLs are http. A member's
// certificate must have the address of one of the endpoints, and be of part registry if there is a
// charter.
func RegistryTLS(endpoints []string, creds *pki.Credentials) *tls.Config {
	if len(endpoints) > 0 && strings.HasPrefix(endpoints[0], "http:") {
		return nil
	}
	var hosts []string
	for _, e := range endpoints {
		if u, err := url.Parse(e); err == nil { // etcd.Open reports the error
			hosts = append(hosts, u.Hostname())
		}
	}
	return creds.Client(pki.Expect{Part: pki.PartRegistry, IfChartered: true}, hosts...)
}
