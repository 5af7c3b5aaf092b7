// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
)

// Bounds of the time spans, and the gateway's own defaults, which other fields are compared with.
const (
	defaultPromise = 3 * time.Second
	minPromise     = 200 * time.Millisecond
	minLease       = time.Second
	beatsInPromise = 3
)

// setDefaults fills what follows from other fields.
func (c *Config) setDefaults() {
	c.Advertise.GRPC = cmp.Or(c.Advertise.GRPC, c.Listen.GRPC)
	c.Advertise.NFS = cmp.Or(c.Advertise.NFS, c.Listen.NFS)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	if c.StateDir == "" && c.Pool.Path != "" {
		c.StateDir = filepath.Join(c.Pool.Path, "clients")
	}
}

// check returns all that keeps a gateway from running with c, which has defaults.
func (c *Config) check() error {
	var p problems
	for _, f := range [][2]string{{"federation", c.Federation}, {"site", c.Site}, {"gateway", c.Gateway}} {
		label(&p, f[0], f[1])
	}
	switch {
	case c.Organization == "":
		p.add("organization", nil, "missing: name the institution that runs this site, as its certificate does")
	case strings.ContainsAny(c.Organization, "/\r\n\x00"):
		p.add("organization", c.Organization, "has a slash or a line break: write the name without")
	}
	listen(&p, "listen.grpc", c.Listen.GRPC, "0.0.0.0:7400")
	listen(&p, "listen.nfs", c.Listen.NFS, "0.0.0.0:2049")
	advertise(&p, "advertise.grpc", c.Advertise.GRPC, c.Listen.GRPC, "10.0.1.10:7400")
	advertise(&p, "advertise.nfs", c.Advertise.NFS, c.Listen.NFS, "10.0.1.10:2049")
	endpoints(&p, "registry.endpoints", c.Registry.Endpoints)
	for _, f := range [][3]string{
		{"tls.ca", c.TLS.CA, "the path of the authority's certificate, ca.crt"},
		{"tls.cert", c.TLS.Cert, "the path of this gateway's certificate (`weir pki issue` makes one)"},
		{"tls.key", c.TLS.Key, "the path of the certificate's key"},
		{"siteKey", c.SiteKey, "a path, outside the pool, where the site's key is kept; it is made there at the first start"},
		{"pool.path", c.Pool.Path, "the folder of the cache pool, on a local disk"},
	} {
		if f[1] == "" {
			p.add(f[0], nil, "missing: write %s", f[2])
		}
	}
	if c.Pool.Size < 0 {
		p.add("pool.size", c.Pool.Size, "negative: write how much the pool may hold, such as 100Gi, or leave it out for nine tenths of the disk")
	}
	if c.Capacity < 0 {
		p.add("capacity", c.Capacity, "negative: write how much this site gives to copies of volumes, such as 40Ti, or leave it out for no limit")
	}
	if c.Health != "" {
		listen(&p, "health", c.Health, "0.0.0.0:8081")
	}
	c.checkStore(&p)
	c.checkTimes(&p)
	if c.Cache < 0 {
		p.add("cache", c.Cache, "negative: write how much memory the cache may take, such as 256Mi")
	}
	if _, err := c.level(); err != nil {
		p.add("logLevel", c.LogLevel, "not a level: write debug, info, warn or error")
	}
	return errors.Join(p...)
}

func (c *Config) level() (slog.Level, error) {
	var l slog.Level
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
		return l, l.UnmarshalText([]byte(c.LogLevel))
	}
	return l, errors.New("not a level")
}

func (c *Config) checkStore(p *problems) {
	s := c.Store
	if s == (StoreConfig{}) {
		return // a site without a store
	}
	if s.Dir != "" {
		if s != (StoreConfig{Dir: s.Dir}) {
			p.add("store.dir", s.Dir, "a store is a directory or a bucket: write only dir, or only endpoint, bucket, accessKey and secretKey")
		}
		return
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case s.Endpoint == "":
		p.add("store.endpoint", nil, "missing: write the URL of the S3 server, such as https://s3.example.org")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "":
		p.add("store.endpoint", s.Endpoint, "not a URL without a path: write it as https://s3.example.org")
	}
	if s.Bucket == "" {
		p.add("store.bucket", nil, "missing: name the bucket; it is made if it does not exist")
	}
	if s.AccessKey == "" {
		p.add("store.accessKey", nil, "missing: write the account's access key")
	}
	switch {
	case s.SecretKey == "" && s.SecretKeyFile == "":
		p.add("store.secretKey", nil, "missing: write the account's secret key, or the path of a file with it as store.secretKeyFile")
	case s.SecretKey != "" && s.SecretKeyFile != "":
		p.add("store.secretKeyFile", s.SecretKeyFile, "store.secretKey is there too: remove one of them")
	}
}

func (c *Config) checkTimes(p *problems) {
	promise := cmp.Or(time.Duration(c.Promise), defaultPromise)
	if promise < minPromise {
		p.add("promise", c.Promise, "too short: write at least %v, or leave it out for %v", minPromise, defaultPromise)
	} else if h := time.Duration(c.Heartbeat); h < 0 || h > promise/beatsInPromise {
		p.add("heartbeat", c.Heartbeat, "not within 0s and %v, a third of promise (%v): write less, or leave it out for a fifteenth of promise", promise/beatsInPromise, promise)
	}
	if l := time.Duration(c.Lease); l != 0 && l < minLease {
		p.add("lease", c.Lease, "too short: write at least %v, or leave it out for 60s", minLease)
	}
	if a := time.Duration(c.AliveFor); a < 0 || a%time.Second != 0 {
		p.add("aliveFor", c.AliveFor, "not whole seconds, at least one: write them so, or leave it out for 10s")
	}
}

func label(p *problems, field, value string) {
	switch {
	case value == "":
		p.add(field, nil, "missing: write its name, a DNS label such as ams-1")
	case federation.CheckLabel(field, value) != nil:
		p.add(field, value, "not a DNS label: use 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last")
	}
}

func listen(p *problems, field, value, example string) {
	if value == "" {
		p.add(field, nil, "missing: write the address and port to listen on, such as %s", example)
	} else if _, _, err := net.SplitHostPort(value); err != nil {
		p.add(field, value, "not an address with a port: write it as %s", example)
	}
}

// advertise checks an address that others use. Port 0 is taken from the listener, host and all.
func advertise(p *problems, field, value, listening, example string) {
	host, port, err := net.SplitHostPort(value)
	ip := net.ParseIP(host)
	switch {
	case value == "": // told about listen already
	case err != nil:
		if value != listening {
			p.add(field, value, "not an address with a port: write it as %s", example)
		}
	case host == "" || (ip != nil && ip.IsUnspecified()):
		p.add(field, value, "others can not reach this address: write the one that they use, such as %s", example)
	case port == "0" && value != listening:
		p.add(field, value, "has no port: write the one that others use, such as %s", example)
	}
}

func endpoints(p *problems, field string, list []string) {
	if len(list) == 0 {
		p.add(field, nil, "missing: write the URLs of the registry's members, such as https://registry-1.example.org:2379")
	}
	scheme := ""
	for _, e := range list {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			p.add(field, e, "not a URL: write it as https://registry-1.example.org:2379")
		case scheme != "" && u.Scheme != scheme:
			p.add(field, e, "some members are https and some http: write https for all")
		default:
			scheme = u.Scheme
		}
	}
}
