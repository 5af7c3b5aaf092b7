// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Ports of etcd at the sites that have a member.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
)

// TLS names the PEM files with which a process shows who it is and checks who others are.
type TLS struct{ CA, Cert, Key string }

// Etcd is a cluster with one member at each of some sites.
type Etcd struct{ members []*EtcdMember }

// EtcdMember is one etcd process and its data. Its methods may be called from several goroutines.
type EtcdMember struct {
	site *Site
	tls  TLS
	bin  string
	args []string

	mu   sync.Mutex
	proc *Proc
}

// StartEtcd starts a member at each of the sites and returns when all answer. tls has each member's
// files by site name. A certificate must name the site's Addr and be valid for servers and clients:
// members use it towards peers and clients, who must show one too. Data is in Site.Dir()/etcd.data,
// output in etcd.log. There is one cluster per stage.
func (s *Stage) StartEtcd(ctx context.Context, tls map[string]TLS, sites ...*Site) (*Etcd, error) {
	bin, err := s.program("etcd")
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	var cluster []string
	for _, site := range sites {
		cluster = append(cluster, fmt.Sprintf("%s=https://%s:%d", site.name, site.Addr(), etcdPeerPort))
	}
	e := &Etcd{}
	for _, site := range sites {
		files := tls[site.name]
		if files.CA == "" || files.Cert == "" || files.Key == "" {
			return nil, fmt.Errorf("start etcd at site %s: tls has %+v: give it CA, Cert and Key", site.name, files)
		}
		m := &EtcdMember{site: site, tls: files, bin: bin}
		peer := fmt.Sprintf("https://%s:%d", site.Addr(), etcdPeerPort)
		m.args = []string{
			"--name=" + site.name, "--data-dir=" + m.DataDir(),
			"--listen-client-urls=" + m.Endpoint(), "--advertise-client-urls=" + m.Endpoint(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-token=" + s.prefix,
			"--client-cert-auth", "--trusted-ca-file=" + files.CA, "--cert-file=" + files.Cert, "--key-file=" + files.Key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + files.CA, "--peer-cert-file=" + files.Cert,
			"--peer-key-file=" + files.Key,
			"--heartbeat-interval=200", "--election-timeout=2000", // for round trips of up to 200 ms
			"--logger=zap", "--log-level=warn",
		}
		e.members = append(e.members, m)
	}
	for _, m := range e.members {
		if err := m.Start(); err != nil {
			return nil, err
		}
	}
	return e, e.Ready(ctx)
}

// Members returns the members in the order of the sites in StartEtcd.
func (e *Etcd) Members() []*EtcdMember { return append([]*EtcdMember(nil), e.members...) }

// Member returns the member at a site, nil when there is none.
func (e *Etcd) Member(site string) *EtcdMember {
	for _, m := range e.members {
		if m.site.name == site {
			return m
		}
	}
	return nil
}

// Endpoints are the client URLs of all members.
func (e *Etcd) Endpoints() []string {
	var urls []string
	for _, m := range e.members {
		urls = append(urls, m.Endpoint())
	}
	return urls
}

// Ready waits until every member answers linearizable reads, so has a leader.
func (e *Etcd) Ready(ctx context.Context) error {
	for _, m := range e.members {
		if err := m.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Endpoint is the member's client URL.
func (m *EtcdMember) Endpoint() string {
	return fmt.Sprintf("https://%s:%d", m.site.Addr(), etcdClientPort)
}

// DataDir is the folder of the member's data.
func (m *EtcdMember) DataDir() string { return filepath.Join(m.site.Dir(), "etcd.data") }

// Start starts the member, again after its process has ended; it finds its data as it was.
func (m *EtcdMember) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil && !m.proc.Exited() {
		return fmt.Errorf("start etcd at site %s: it runs", m.site.name)
	}
	p, err := m.site.Start("etcd", m.site.Command(context.Background(), m.bin, m.args...))
	if err == nil {
		m.proc = p
	}
	return err
}

// Proc is the process of the latest Start, to kill, stop and continue.
func (m *EtcdMember) Proc() *Proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// Ready waits until the member says that it is healthy: it has a leader and commits.
func (m *EtcdMember) Ready(ctx context.Context) error {
	config, err := m.tls.ClientConfig()
	if err != nil {
		return fmt.Errorf("check etcd at site %s: %w", m.site.name, err)
	}
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: m.site.DialContext, TLSClientConfig: config},
	}
	defer client.CloseIdleConnections()
	return awaitHTTP(ctx, client, m.Endpoint()+"/health", m.Proc())
}

// awaitHTTP asks for a page until the answer is 200, the process behind it ends, or ctx does.
func awaitHTTP(ctx context.Context, client *http.Client, url string, p *Proc) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", p.name, err)
		}
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(res.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last: %w; its log ends: %s", p.name, ctx.Err(), err, p.tail())
		case <-p.done:
			return fmt.Errorf("wait for %s: it has ended: %w; its log ends: %s", p.name, p.err, p.tail())
		case <-tick.C:
		}
	}
}
