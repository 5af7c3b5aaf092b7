// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/pki"
)

// connection is how a person's command reaches the federation: flags, else the environment, else a file.
type connection struct {
	registry      []string
	ca, cert, key string
	federation    string
	config        string
	site          string // of the file; a default for --site
	noRegistry    bool   // it needs none
}

// client is what a person's command works with.
type client struct {
	registry federation.Registry
	self     pki.Identity
	// dial makes a connection to a gateway, whose certificate must be that gateway's.
	dial func(federation.Site, federation.Gateway) (*grpc.ClientConn, error)
}

func (c *client) close() { _ = c.registry.Close() } // the command is over

// flags adds the connection's flags to c and the commands below it.
func (n *connection) flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringSliceVar(&n.registry, "registry", nil, "`URL`s of the registry's members [WEIR_REGISTRY]")
	f.StringVar(&n.ca, "ca", "", "`FILE` with the authority's certificate [WEIR_CA]")
	f.StringVar(&n.cert, "cert", "", "`FILE` with your certificate [WEIR_CERT]")
	f.StringVar(&n.key, "key", "", "`FILE` with its key [WEIR_KEY]")
	f.StringVar(&n.federation, "federation", "", "federation's `NAME`, by default the certificate's [WEIR_FEDERATION]")
	f.StringVar(&n.config, "config", "", "`FILE` that has registry, tls, federation and site, such as a gateway's [WEIR_CONFIG]")
}

// complete fills what no flag said.
func (n *connection) complete(getenv func(string) string) error {
	n.config = cmp.Or(n.config, getenv("WEIR_CONFIG"))
	var file Config
	if n.config != "" {
		var err error
		if file, err = readConfig(n.config); err != nil {
			return err
		}
	}
	if env := getenv("WEIR_REGISTRY"); len(n.registry) == 0 && env != "" {
		for e := range strings.SplitSeq(env, ",") {
			n.registry = append(n.registry, strings.TrimSpace(e))
		}
	}
	if len(n.registry) == 0 {
		n.registry = file.Registry.Endpoints
	}
	n.ca = cmp.Or(n.ca, getenv("WEIR_CA"), file.TLS.CA)
	n.cert = cmp.Or(n.cert, getenv("WEIR_CERT"), file.TLS.Cert)
	n.key = cmp.Or(n.key, getenv("WEIR_KEY"), file.TLS.Key)
	n.federation = cmp.Or(n.federation, getenv("WEIR_FEDERATION"), file.Federation)
	n.site = file.Site

	var missing []string
	registry := strings.Join(n.registry, "")
	if n.noRegistry {
		registry = "none"
	}
	for _, f := range [][2]string{{"--registry (WEIR_REGISTRY)", registry}, {"--ca (WEIR_CA)", n.ca}, {"--cert (WEIR_CERT)", n.cert}, {"--key (WEIR_KEY)", n.key}} {
		if f[1] == "" {
			missing = append(missing, f[0])
		}
	}
	if len(missing) > 0 {
		return usage("it is not known how to reach the federation: give %s, or --config FILE (WEIR_CONFIG) that has registry and tls", strings.Join(missing, ", "))
	}
	if n.noRegistry {
		return nil
	}
	var p problems
	endpoints(&p, "--registry", n.registry)
	if len(p) > 0 {
		return &usageError{errors.Join(p...)}
	}
	return nil
}

// open completes n and connects. The caller closes the client.
func (sh *shell) open(n *connection) (*client, error) {
	if err := n.complete(sh.getenv); err != nil {
		return nil, err
	}
	return sh.connect(*n)
}

// connect is shell.connect outside tests.
func connect(n connection) (*client, error) {
	creds, err := pki.LoadFiles(pki.Files{CA: n.ca, Cert: n.cert, Key: n.key}, time.Now)
	if err != nil {
		return nil, err
	}
	id := creds.Identity()
	if n.federation != "" && n.federation != id.Federation {
		return nil, fmt.Errorf("connect to federation %q: certificate %s is of federation %q: give the certificate of that federation, or leave --federation out", n.federation, n.cert, id.Federation)
	}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: n.registry, Federation: id.Federation, TLS: registryTLS(n.registry, creds)})
	if err != nil {
		return nil, err
	}
	return &client{registry: registry, self: id, dial: dialer(creds)}, nil
}
