// SPDX-License-Identifier: Apache-2.0

// Package config reads and checks a gateway's configuration file. Commands of people use a part of
// the same file. docs/reference/gateway-config.md describes it.
package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-storage/weir/federation"
)

// Config is a gateway's configuration file.
type Config struct {
	Federation   string            `json:"federation"`
	Organization string            `json:"organization"`
	Region       string            `json:"region"`
	Site         string            `json:"site"`
	Gateway      string            `json:"gateway"`
	Labels       map[string]string `json:"labels"`

	Listen    Addresses `json:"listen"`    // where this process listens
	Advertise Addresses `json:"advertise"` // where others reach it

	Registry Registry `json:"registry"`
	TLS      TLS      `json:"tls"`
	SiteKey  string   `json:"siteKey"` // path
	Keys     Keys     `json:"keys"`
	Pool     Pool     `json:"pool"`  // the main one
	Pools    []Pool   `json:"pools"` // the others
	Store    Store    `json:"store"`
	// Capacity is how much space the site gives to copies of volumes. 0 is no limit.
	Capacity federation.Bytes `json:"capacity"`
	// Lends are other organizations whose volumes may have copies here; "*" is all.
	Lends  []string `json:"lends"`
	Health string   `json:"health"` // host:port of /healthz and /readyz; empty: nowhere

	Metrics Metrics `json:"metrics"`

	Promise   federation.Duration `json:"promise"`
	Heartbeat federation.Duration `json:"heartbeat"`
	Lease     federation.Duration `json:"lease"`
	AliveFor  federation.Duration `json:"aliveFor"`
	// Memory is what the process is to take in all. See config_memory.go.
	Memory federation.Bytes `json:"memory"`
	// Cache is of decrypted blocks.
	Cache federation.Bytes `json:"cache"`
	// ClientMemory is of what NFS clients have and ask for.
	ClientMemory federation.Bytes `json:"clientMemory"`
	StateDir     string           `json:"stateDir"`
	LogLevel     string           `json:"logLevel"`
	LogFormat    string           `json:"logFormat"` // text (the default) or json
	// SlowOperation is how long an operation of a client takes that is logged. 0: none is.
	SlowOperation *federation.Duration `json:"slowOperation"`
	Tracing       Tracing              `json:"tracing"`
}

// Keys says what protects the site's key.
type Keys struct {
	KMS KMS `json:"kms"`
}

// KMS is a plugin that seals the site's key.
type KMS struct {
	Endpoint string `json:"endpoint"` // unix:// and the path of its socket; empty: there is none
	// From is a file with the key, sealed or not, which is taken while siteKey is not there.
	From string `json:"from"`
}

// Tracing is where traces of requests go.
type Tracing struct {
	Endpoint string   `json:"endpoint"` // URL of a collector of OpenTelemetry; empty: there are no traces
	Share    *float64 `json:"share"`    // of the requests, from 0 to 1
}

// Addresses are the host:port of both services.
type Addresses struct {
	GRPC string `json:"grpc"`
	NFS  string `json:"nfs"`
}

// Metrics is how Prometheus reads what the gateway measures.
type Metrics struct {
	Listen string `json:"listen"` // host:port of /metrics; empty: nowhere
	Access string `json:"access"` // who may: ByCertificate (the default) or ByKubernetes
}

// Values of Metrics.Access.
const (
	ByCertificate = "Certificate"
	ByKubernetes  = "Kubernetes"
)

// Registry is where the registry's members are.
type Registry struct {
	Endpoints []string `json:"endpoints"`
}

// TLS has paths of PEM files.
type TLS struct {
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Pool is the cache pool.
type Pool struct {
	// Name is what people call it; "": main, of the main one.
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"` // by which policies choose it

	Path string           `json:"path"`
	Size federation.Bytes `json:"size"` // 0: nine tenths of what its file system has left
	ZFS  *ZFS             `json:"zfs"`  // nil: the folder Path of any file system
}

// ZFS is the dataset that Pool.Path is the mountpoint of.
type ZFS struct {
	Dataset string      `json:"dataset"`
	Devices *ZFSDevices `json:"devices"` // nil: the ZFS pool is there
	// HostRoot is where a container has the machine's root, whose tools are used.
	HostRoot string `json:"hostRoot"`
}

// ZFSDevices are paths of block devices that hold nothing. A ZFS pool is made of them if there is
// none of the name.
type ZFSDevices struct {
	Data      []string `json:"data"`
	Layout    string   `json:"layout"` // Stripe (the default), Mirror, Raidz, Raidz2, Raidz3
	Cache     []string `json:"cache"`  // L2ARC
	Log       []string `json:"log"`    // SLOG
	MirrorLog bool     `json:"mirrorLog"`
}

// Store is the site's bucket or a directory. The zero Store means that the site has no store.
type Store struct {
	Endpoint      string `json:"endpoint"`
	Bucket        string `json:"bucket"`
	Region        string `json:"region"`
	AccessKey     string `json:"accessKey"`
	SecretKey     string `json:"secretKey"`
	SecretKeyFile string `json:"secretKeyFile"`
	Dir           string `json:"dir"`
}

// Read reads a file and refuses unknown fields. It makes relative paths relative to the file's
// folder. It does not check that the file is complete: a person's command needs only a part of it.
func Read(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read configuration: %w: give the path of a gateway's configuration file", err)
	}
	if err := decodeStrict(text, &c); err != nil {
		return c, InFile(path, err)
	}
	paths := []*string{&c.TLS.CA, &c.TLS.Cert, &c.TLS.Key, &c.SiteKey, &c.Pool.Path, &c.Store.SecretKeyFile, &c.Store.Dir, &c.StateDir}
	for i := range c.Pools {
		paths = append(paths, &c.Pools[i].Path)
	}
	for _, f := range paths {
		if *f != "" && !filepath.IsAbs(*f) {
			*f = filepath.Join(filepath.Dir(path), *f)
		}
	}
	return c, nil
}

// InFile adds the name of the file to what Check returned, with one problem on each line.
func InFile(path string, err error) error {
	many, ok := err.(interface{ Unwrap() []error }) // only what Check joined
	if !ok {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	list := many.Unwrap()
	if len(list) == 1 {
		return fmt.Errorf("configuration %s: %w", path, list[0])
	}
	text := fmt.Sprintf("configuration %s: %d problems", path, len(list))
	for _, e := range list {
		text += "\n  " + e.Error()
	}
	return errors.New(text)
}
