// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weir-storage/weir/federation"
)

// Bounds of the time spans. Fields that are not set count with the gateway's default.
const (
	defaultPromise = 3 * time.Second
	minPromise     = 200 * time.Millisecond
	minLease       = time.Second
	beatsInPromise = 3
)

// SetDefaults fills empty fields whose value follows from others.
func (c *Config) SetDefaults() {
	c.Advertise.GRPC = cmp.Or(c.Advertise.GRPC, c.Listen.GRPC)
	c.Advertise.NFS = cmp.Or(c.Advertise.NFS, c.Listen.NFS)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	c.LogFormat = cmp.Or(c.LogFormat, logFormats[0])
	if c.SlowOperation == nil {
		c.SlowOperation = new(federation.Duration(time.Second))
	}
	if c.Tracing.Share == nil {
		c.Tracing.Share = new(0.01)
	}
	c.setMemory()
	c.Pool.Name = cmp.Or(c.Pool.Name, "main")
	if c.StateDir == "" && c.Pool.Path != "" {
		c.StateDir = filepath.Join(c.Pool.Path, "clients")
	}
}

// Check returns everything that keeps a gateway from running with c, joined. Call SetDefaults
// first.
func (c *Config) Check() error {
	var p Problems
	for _, f := range [][2]string{{"federation", c.Federation}, {"site", c.Site}, {"gateway", c.Gateway}} {
		label(&p, f[0], f[1])
	}
	switch {
	case c.Organization == "":
		p.Add("organization", nil, "missing: name the institution that runs this site, as its certificate does")
	case strings.ContainsAny(c.Organization, "/\r\n\x00"):
		p.Add("organization", c.Organization, "has a slash or a line break: write the name without")
	}
	checkLabels(&p, "labels.", c.Labels)
	listen(&p, "listen.grpc", c.Listen.GRPC, "0.0.0.0:7400")
	listen(&p, "listen.nfs", c.Listen.NFS, "0.0.0.0:2049")
	advertise(&p, "advertise.grpc", c.Advertise.GRPC, c.Listen.GRPC, "10.0.1.10:7400")
	advertise(&p, "advertise.nfs", c.Advertise.NFS, c.Listen.NFS, "10.0.1.10:2049")
	CheckEndpoints(&p, "registry.endpoints", c.Registry.Endpoints)
	for _, f := range [][3]string{
		{"tls.ca", c.TLS.CA, "the path of the authority's certificate, ca.crt"},
		{"tls.cert", c.TLS.Cert, "the path of this gateway's certificate (`weir pki issue` makes one)"},
		{"tls.key", c.TLS.Key, "the path of the certificate's key"},
		{"siteKey", c.SiteKey, "a path, outside the pool, where the site's key is kept; it is made there at the first start"},
	} {
		if f[1] == "" {
			p.Add(f[0], nil, "missing: write %s", f[2])
		}
	}
	if e := c.Keys.KMS.Endpoint; e != "" && !strings.HasPrefix(e, "unix:///") {
		p.Add("keys.kms.endpoint", e, "no path of a socket: write unix:///run/kms.sock, or leave it out")
	}
	if from := c.Keys.KMS.From; from != "" && (c.Keys.KMS.Endpoint == "" || from == c.SiteKey) {
		p.Add("keys.kms.from", from, "it is a file that siteKey, sealed, takes the place of: write keys.kms.endpoint too, and another "+
			"path than siteKey")
	}
	c.checkPools(&p)
	if c.Capacity < 0 {
		p.Add("capacity", c.Capacity,
			"negative: write how much this site gives to copies of volumes, such as 40Ti, or leave it out for no limit")
	}
	for i, o := range c.Lends {
		if o == "" || strings.ContainsAny(o, "/\n") {
			p.Add(fmt.Sprintf("lends[%d]", i), o, "name an institution as in its certificates, without a slash, or write %q for all",
				federation.LendsToAll)
		}
	}
	if c.Health != "" {
		listen(&p, "health", c.Health, "0.0.0.0:8081")
	}
	if c.Metrics.Listen != "" {
		listen(&p, "metrics.listen", c.Metrics.Listen, "0.0.0.0:8085")
	}
	if a := c.Metrics.Access; a != "" && a != ByCertificate && a != ByKubernetes {
		p.Add("metrics.access", a, "write %s, for who shows a certificate of the federation, or %s, for whom the cluster allows it",
			ByCertificate, ByKubernetes)
	}
	c.checkStore(&p)
	c.checkTimes(&p)
	c.checkMemory(&p)
	if _, err := ParseLevel(c.LogLevel); err != nil {
		p.Add("logLevel", c.LogLevel, "not a level: write debug, info, warn or error")
	}
	if !slices.Contains(logFormats, c.LogFormat) {
		p.Add("logFormat", c.LogFormat, "write text or json")
	}
	if *c.SlowOperation < 0 {
		p.Add("slowOperation", *c.SlowOperation, "negative: write how long an operation takes that is logged, such as 1s, or 0s for none")
	}
	c.checkTracing(&p)
	return errors.Join(p...)
}

// checkPools checks the main pool and the others.
func (c *Config) checkPools(p *Problems) {
	paths, names := map[string]string{}, map[string]string{}
	for i, pool := range append([]Pool{c.Pool}, c.Pools...) {
		field := "pool."
		if i > 0 {
			field = fmt.Sprintf("pools[%d].", i-1)
		}
		label(p, field+"name", pool.Name)
		if other, ok := names[pool.Name]; ok && pool.Name != "" {
			p.Add(field+"name", pool.Name, "%sname is the same: give each pool a name of its own", other)
		}
		names[pool.Name] = field
		path := filepath.Clean(pool.Path)
		if pool.Path == "" {
			p.Add(field+"path", nil, "missing: write the folder of the cache pool, on a local disk")
		} else if other, ok := paths[path]; ok {
			p.Add(field+"path", pool.Path, "%spath is the same: give each pool a folder of its own", other)
		}
		for other, at := range paths {
			if pool.Path != "" && other != path && (strings.HasPrefix(path+"/", other+"/") || strings.HasPrefix(other+"/", path+"/")) {
				p.Add(field+"path", pool.Path, "one is in the other, %spath (%s): give each pool a folder of its own", at, other)
			}
		}
		paths[path] = field
		if pool.Size < 0 {
			p.Add(field+"size", pool.Size,
				"negative: write how much the pool may hold, such as 100Gi, or leave it out for nine tenths of the disk")
		}
		checkLabels(p, field+"labels.", pool.Labels)
		z := pool.ZFS
		if z != nil && z.Dataset == "" {
			p.Add(field+"zfs.dataset", nil, "missing: write the dataset that is mounted at %spath, such as tank/weir", field)
		}
		if z != nil && z.HostRoot != "" && !filepath.IsAbs(z.HostRoot) {
			p.Add(field+"zfs.hostRoot", z.HostRoot, "no absolute path: write where the machine's root is mounted, such as /host")
		}
	}
}

// checkLabels checks labels as Kubernetes does. Clusters show the site's as those of its Site
// object, and a pool's as those of its CachePool; policies select by them.
func checkLabels(p *Problems, field string, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v := labels[k]
		if why := validation.IsQualifiedName(k); len(why) > 0 {
			p.Add(field+k, v, "its name is not one that Kubernetes allows: write one such as jurisdiction or example.org/tier (%s)",
				strings.Join(why, "; "))
		}
		if why := validation.IsValidLabelValue(v); len(why) > 0 {
			p.Add(field+k, v, "not a value that Kubernetes allows: write at most 63 letters, digits, '-', '_' and '.', with a letter "+
				"or digit first and last")
		}
	}
}

func (c *Config) checkTracing(p *Problems) {
	if s := *c.Tracing.Share; s < 0 || s > 1 {
		p.Add("tracing.share", s, "write the share of requests to follow, from 0 to 1, such as 0.01")
	}
	if c.Tracing.Endpoint == "" {
		return
	}
	u, err := url.Parse(c.Tracing.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		p.Add("tracing.endpoint", c.Tracing.Endpoint,
			"not a URL without a path: write where a collector takes OTLP over gRPC, such as http://collector:4317")
	}
}

// logFormats are the values of logFormat, the default first.
var logFormats = []string{"text", "json"}

// NewLogger returns a log that w gets, with the least level and in the format of these names. The
// error names what is wrong.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	l, err := ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("level %q: write debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("format %q: write text or json", format)
}

// ParseLevel reads a level of logging: debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	var l slog.Level
	switch text {
	case "debug", "info", "warn", "error":
		return l, l.UnmarshalText([]byte(text))
	}
	return l, errors.New("not a level")
}

func (c *Config) checkStore(p *Problems) {
	s := c.Store
	if s == (Store{}) {
		return // a site without a store
	}
	if s.Dir != "" {
		if s != (Store{Dir: s.Dir}) {
			p.Add("store.dir", s.Dir,
				"a store is a directory or a bucket: write only dir, or only endpoint, bucket, accessKey and secretKey")
		}
		return
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case s.Endpoint == "":
		p.Add("store.endpoint", nil, "missing: write the URL of the S3 server, such as https://s3.example.org")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "":
		p.Add("store.endpoint", s.Endpoint, "not a URL without a path: write it as https://s3.example.org")
	}
	if s.Bucket == "" {
		p.Add("store.bucket", nil, "missing: name the bucket; it is made if it does not exist")
	}
	if s.AccessKey == "" {
		p.Add("store.accessKey", nil, "missing: write the account's access key")
	}
	switch {
	case s.SecretKey == "" && s.SecretKeyFile == "":
		p.Add("store.secretKey", nil, "missing: write the account's secret key, or the path of a file with it as store.secretKeyFile")
	case s.SecretKey != "" && s.SecretKeyFile != "":
		p.Add("store.secretKeyFile", s.SecretKeyFile, "store.secretKey is there too: remove one of them")
	}
}

func (c *Config) checkTimes(p *Problems) {
	promise := cmp.Or(time.Duration(c.Promise), defaultPromise)
	if promise < minPromise {
		p.Add("promise", c.Promise, "too short: write at least %v, or leave it out for %v", minPromise, defaultPromise)
	} else if h := time.Duration(c.Heartbeat); h < 0 || h > promise/beatsInPromise {
		p.Add("heartbeat", c.Heartbeat,
			"not within 0s and %v, a third of promise (%v): write less, or leave it out for a fifteenth of promise",
			promise/beatsInPromise, promise)
	}
	if l := time.Duration(c.Lease); l != 0 && l < minLease {
		p.Add("lease", c.Lease, "too short: write at least %v, or leave it out for 60s", minLease)
	}
	if a := time.Duration(c.AliveFor); a < 0 || a%time.Second != 0 {
		p.Add("aliveFor", c.AliveFor, "not whole seconds, at least one: write them so, or leave it out for 10s")
	}
}

func label(p *Problems, field, value string) {
	switch {
	case value == "":
		p.Add(field, nil, "missing: write its name, a DNS label such as ams-1")
	case federation.CheckLabel(field, value) != nil:
		p.Add(field, value, "not a DNS label: use 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last")
	}
}

func listen(p *Problems, field, value, example string) {
	if value == "" {
		p.Add(field, nil, "missing: write the address and port to listen on, such as %s", example)
	} else if _, _, err := net.SplitHostPort(value); err != nil {
		p.Add(field, value, "not an address with a port: write it as %s", example)
	}
}

// advertise checks an address that others use. With port 0 the listener's own address replaces it.
func advertise(p *Problems, field, value, listening, example string) {
	host, port, err := net.SplitHostPort(value)
	ip := net.ParseIP(host)
	switch {
	case value == "": // listen has reported it
	case err != nil:
		if value != listening {
			p.Add(field, value, "not an address with a port: write it as %s", example)
		}
	case host == "" || (ip != nil && ip.IsUnspecified()):
		p.Add(field, value, "others can not reach this address: write the one that they use, such as %s", example)
	case port == "0" && value != listening:
		p.Add(field, value, "has no port: write the one that others use, such as %s", example)
	}
}

// CheckEndpoints checks the URLs of the registry's members.
func CheckEndpoints(p *Problems, field string, list []string) {
	if len(list) == 0 {
		p.Add(field, nil, "missing: write the URLs of the registry's members, such as https://registry-1.example.org:2379")
	}
	scheme := ""
	for _, e := range list {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			p.Add(field, e, "not a URL: write it as https://registry-1.example.org:2379")
		case scheme != "" && u.Scheme != scheme:
			p.Add(field, e, "some members are https and some http: write https for all")
		default:
			scheme = u.Scheme
		}
	}
}
