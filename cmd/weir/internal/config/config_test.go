// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// good is the configuration of docs/reference/gateway-config.md.
const good = `
federation: demo
organization: SURF
region: nl
site: ams
gateway: ams-1
labels: {jurisdiction: eu}
listen: {grpc: "0.0.0.0:7400", nfs: "0.0.0.0:2049"}
advertise: {grpc: "10.0.1.10:7400", nfs: "10.0.1.10:2049"}
registry: {endpoints: ["https://10.0.1.2:2379"]}
tls: {ca: ca.crt, cert: ams-1.crt, key: ams-1.key}
siteKey: /var/lib/weir/site.key
pool: {path: pool, size: 100Gi}
store: {endpoint: "https://s3.example.org", bucket: weir-ams, accessKey: weir, secretKeyFile: s3.secret}
promise: 3s
heartbeat: 200ms
lease: 60s
aliveFor: 10s
cache: 256Mi
logLevel: info
`

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(path)
	if err != nil {
		return c, err
	}
	c.SetDefaults()
	if err := c.Check(); err != nil {
		return c, InFile(path, err)
	}
	return c, nil
}

func TestConfig(t *testing.T) {
	c, err := load(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(c.Pool.Path, "/pool") || !filepath.IsAbs(c.Pool.Path) || c.StateDir != filepath.Join(c.Pool.Path, "clients") {
		t.Errorf("pool %q, stateDir %q: relative paths are the file's folder's", c.Pool.Path, c.StateDir)
	}
	if c.SiteKey != "/var/lib/weir/site.key" || c.Pool.Size != 100<<30 || c.Cache != 256<<20 {
		t.Errorf("read %+v", c)
	}
}

// Each field of the file can be written.
func TestEveryField(t *testing.T) {
	var value func(reflect.Type) any
	value = func(t reflect.Type) any {
		switch {
		case t == reflect.TypeFor[federation.Bytes]():
			return "1Gi"
		case t == reflect.TypeFor[federation.Duration]():
			return "1s"
		}
		switch t.Kind() {
		case reflect.Pointer:
			return value(t.Elem())
		case reflect.Struct:
			m := map[string]any{}
			for f := range t.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				m[name] = value(f.Type)
			}
			return m
		case reflect.Map:
			return map[string]any{"x": value(t.Elem())}
		case reflect.Slice:
			return []any{value(t.Elem())}
		case reflect.String:
			return "x"
		}
		return reflect.Zero(t).Interface()
	}
	all := value(reflect.TypeFor[Config]())
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Pool.ZFS == nil || c.Pool.ZFS.Devices == nil || len(c.Pool.ZFS.Devices.Cache) != 1 {
		t.Errorf("read %+v", c.Pool.ZFS)
	}
}

// Each problem names the field, its value and what to write instead.
func TestConfigProblems(t *testing.T) {
	for _, c := range []struct{ name, old, with, want string }{
		{"unknown", "region: nl", "regoin: nl", `regoin: unknown field; known here are advertise, aliveFor,`},
		{"unknown near", "siteKey:", "sitekey:", `sitekey: unknown field (did you mean siteKey?)`},
		{"unknown nested", "size: 100Gi", "limit: 100Gi", `pool.limit: unknown field; known here are labels, name, path, size, zfs`},
		{"twice", "region: nl", "region: nl\nregion: be", "already set"},
		{"form", "labels: {jurisdiction: eu}", "labels: eu", `labels: "eu": not the right form: write a mapping`},
		{"text", "jurisdiction: eu", "jurisdiction: 1", `labels.jurisdiction: 1: not the right form: write text`},
		{"label blank", "jurisdiction: eu", "jurisdiction: the eu", `labels.jurisdiction: "the eu": not a value that Kubernetes allows`},
		{"label long", "jurisdiction: eu", "jurisdiction: " + strings.Repeat("e", 64), `write at most 63 letters, digits`},
		{"label name", "jurisdiction: eu", "the law: eu", `labels.the law: "eu": its name is not one that Kubernetes allows`},
		{"label prefix", "jurisdiction: eu", "a/b/c: eu", `labels.a/b/c: "eu": its name is not one that Kubernetes allows`},
		{"list", `endpoints: ["https://10.0.1.2:2379"]`, `endpoints: "https://10.0.1.2:2379"`,
			`registry.endpoints: "https://10.0.1.2:2379": not the right form: write a list`},
		{"federation", "federation: demo", "federation: Demo", `federation: "Demo": not a DNS label`},
		{"federation missing", "federation: demo", "", `federation: missing`},
		{"organization", "organization: SURF", "organization: a/b", `organization: "a/b": has a slash`},
		{"site", "site: ams", "site: a_b", `site: "a_b": not a DNS label`},
		{"gateway", "gateway: ams-1", "gateway: ''", `gateway: missing`},
		{"listen", `grpc: "0.0.0.0:7400", nfs`, `grpc: "7400", nfs`,
			`listen.grpc: "7400": not an address with a port: write it as 0.0.0.0:7400`},
		{"advertise", `advertise: {grpc: "10.0.1.10:7400", nfs: "10.0.1.10:2049"}`, "",
			`advertise.grpc: "0.0.0.0:7400": others can not reach this address`},
		{"advertise port", `{grpc: "10.0.1.10:7400", nfs: "10`, `{grpc: "10.0.1.10:0", nfs: "10`,
			`advertise.grpc: "10.0.1.10:0": has no port`},
		{"endpoints", `["https://10.0.1.2:2379"]`, "[]", `registry.endpoints: missing`},
		{"endpoint", `["https://10.0.1.2:2379"]`, "[10.0.1.2]", `registry.endpoints: "10.0.1.2": not a URL`},
		{"endpoints mixed", `["https://10.0.1.2:2379"]`, `["https://10.0.1.2:2379", "http://10.0.1.3:2379"]`,
			`registry.endpoints: "http://10.0.1.3:2379": some members are https`},
		{"tls", "ca: ca.crt, ", "", `tls.ca: missing: write the path of the authority's certificate`},
		{"siteKey", "siteKey: /var/lib/weir/site.key", "", `siteKey: missing: write a path`},
		{"kms from nowhere", "siteKey:", "keys: {kms: {from: /etc/weir/old.key}}\nsiteKey:", `keys.kms.from: "/etc/weir/old.key"`},
		{"kms", "siteKey:", "keys: {kms: {endpoint: /run/kms.sock}}\nsiteKey:", `keys.kms.endpoint: "/run/kms.sock": no path of a socket`},
		{"pool", "path: pool, ", "", `pool.path: missing`},
		{"pool size", "100Gi", "-1Gi", `pool.size: -1Gi: negative`},
		{"pool label", "size: 100Gi}", "size: 100Gi, labels: {a b: c}}", `pool.labels.a b: "c": its name is not one`},
		{"another pool", "size: 100Gi}", "size: 100Gi}\npools: [{}]", `pools[0].path: missing`},
		{"another pool's name", "size: 100Gi}", "size: 100Gi}\npools: [{path: x}]", `pools[0].name: missing`},
		{"pools of one name", "size: 100Gi}", "size: 100Gi}\npools: [{name: main, path: x}]", `pools[0].name: "main": pool.name is`},
		{"pools of one folder", "size: 100Gi}", "size: 100Gi}\npools: [{name: x, path: ./pool/}]", `pool.path is the same`},
		{"a pool in a pool", "size: 100Gi}", "size: 100Gi}\npools: [{name: x, path: pool/x}]", `one is in the other, pool.path`},
		{"another pool's dataset", "size: 100Gi}", "size: 100Gi}\npools: [{name: x, path: x, zfs: {}}]", `pools[0].zfs.dataset: missing`},
		{"dataset", "size: 100Gi", "size: 100Gi, zfs: {}", `pool.zfs.dataset: missing: write the dataset`},
		{"root", "size: 100Gi", "size: 100Gi, zfs: {dataset: tank/weir, hostRoot: host}", `pool.zfs.hostRoot: "host": no absolute path`},
		{"devices", "size: 100Gi", "size: 100Gi, zfs: {dataset: tank/weir, devices: /dev/sda}",
			`pool.zfs.devices: "/dev/sda": not the right form`},
		{"mirror", "size: 100Gi", "size: 100Gi, zfs: {dataset: tank/weir, devices: {mirrorLog: both}}",
			`pool.zfs.devices.mirrorLog: "both": not the right form: write true or false`},
		{"capacity", "region: nl", "region: nl\ncapacity: -1Gi", `capacity: -1Gi: negative`},
		{"health", "region: nl", "region: nl\nhealth: \"8081\"", `health: "8081": not an address with a port: write it as 0.0.0.0:8081`},
		{"pool amount", "100Gi", "lots", `pool.size: "lots" is not an amount of bytes`},
		{"store endpoint", "https://s3.example.org", "s3.example.org", `store.endpoint: "s3.example.org": not a URL`},
		{"store bucket", "bucket: weir-ams, ", "", `store.bucket: missing`},
		{"store key", "accessKey: weir, ", "", `store.accessKey: missing`},
		{"store secret", ", secretKeyFile: s3.secret", "", `store.secretKey: missing: write the account's secret key`},
		{"store secrets", "secretKeyFile:", "secretKey: x, secretKeyFile:", `store.secretKey is there too: remove one of them`},
		{"store both", "bucket: weir-ams", "dir: /d", `a store is a directory or a bucket`},
		{"promise", "promise: 3s", "promise: 1ms", `promise: 1ms: too short`},
		{"promise unit", "promise: 3s", "promise: 3", `promise: 3: not the right form: write a time span with its unit`},
		{"heartbeat", "heartbeat: 200ms", "heartbeat: 2s", `heartbeat: 2s: not within 0s and 1s, a third of promise (3s)`},
		{"lease", "lease: 60s", "lease: 1ms", `lease: 1ms: too short`},
		{"aliveFor", "aliveFor: 10s", "aliveFor: 1500ms", `aliveFor: 1.5s: not whole seconds`},
		{"cache", "cache: 256Mi", "cache: -1", `cache: -1: negative`},
		{"client memory", "cache: 256Mi", "clientMemory: 1Mi", `clientMemory: 1Mi: too little`},
		{"memory", "cache: 256Mi", "cache: 256Mi\nmemory: 512Mi", `memory: 512Mi: too little`},
		{"little memory", "cache: 256Mi", "memory: 16Mi", `memory: 16Mi: too little`},
		{"negative memory", "cache: 256Mi", "memory: -1", `memory: -1: too little`},
		{"logFormat", "logLevel: info", "logFormat: xml", `logFormat: "xml": write text or json`},
		{"slowOperation", "logLevel: info", "slowOperation: -1s", `slowOperation: -1s: negative`},
		{"slowOperation unit", "logLevel: info", "slowOperation: 1", `slowOperation: 1: not the right form: write a time span`},
		{"tracing endpoint", "logLevel: info", "tracing: {endpoint: collector}", `tracing.endpoint: "collector": not a URL without a path`},
		{"tracing share", "logLevel: info", "tracing: {share: 2}", `tracing.share: 2: write the share of requests to follow, from 0 to 1`},
		{"tracing share", "logLevel: info", "tracing: {share: all}", `tracing.share: "all": not the right form: write a number`},
		{"logLevel", "logLevel: info", "logLevel: loud", `logLevel: "loud": not a level: write debug, info, warn or error`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("the good file has no %q", c.old)
			}
			_, err := load(t, strings.Replace(good, c.old, c.with, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant … %s …", err, c.want)
			}
		})
	}
}

// The error has all problems at once.
func TestConfigTellsAll(t *testing.T) {
	_, err := load(t, "federation: demo")
	for _, want := range []string{"11 problems", "organization: missing", "listen.nfs: missing", "siteKey: missing", "pool.path: missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant … %s …", err, want)
		}
	}
}
