// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Ports of etcd at the sites that have a member.
const (
	etcdClientPort  = 2379
	etcdPeerPort    = 2380
	etcdMetricsPort = 2381 // on the loopback address
)

// etcdBehind is where a member listens that has a Front.
const etcdBehind = "127.0.0.1:2378"

// Front is a program that stands between clients and each member of an etcd, which then listens on
// the site's loopback address only.
type Front struct {
	// Args are more flags of etcd.
	Args []string
	// Command makes the program. It listens at one address and reaches the member at the other,
	// both host:port. It has the member's files.
	Command func(site *Site, files TLS, listen, etcd string) *exec.Cmd
}

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
	gate *Front // nil: there is none

	mu    sync.Mutex
	proc  *Proc
	front *Proc
}

// StartEtcd starts a member at each of the sites and returns when all answer. tls has each member's
// files by site name. A certificate must name the site's Addr and be valid for servers and clients:
// members use it towards peers and clients, who must show one too. Data is in Site.Dir()/etcd.data,
// output in etcd.log. There is one cluster per stage. front may be nil.
func (s *Stage) StartEtcd(ctx context.Context, front *Front, tls map[string]TLS, sites ...*Site) (*Etcd, error) {
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
		m := &EtcdMember{site: site, tls: files, bin: bin, gate: front}
		peer := fmt.Sprintf("https://%s:%d", site.Addr(), etcdPeerPort)
		m.args = []string{
			"--name=" + site.name, "--data-dir=" + m.DataDir(),
			"--listen-client-urls=" + m.listens(), "--advertise-client-urls=" + m.listens(),
			"--listen-metrics-urls=" + m.metrics(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-token=" + s.prefix,
			"--client-cert-auth", "--trusted-ca-file=" + files.CA, "--cert-file=" + files.Cert, "--key-file=" + files.Key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + files.CA, "--peer-cert-file=" + files.Cert,
			"--peer-key-file=" + files.Key,
			"--heartbeat-interval=200", "--election-timeout=2000", // for round trips of up to 200 ms
			"--logger=zap", "--log-level=warn",
		}
		if front != nil {
			m.args = append(m.args, front.Args...)
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

// listens is the URL at which the member itself listens.
func (m *EtcdMember) listens() string {
	if m.gate == nil {
		return m.Endpoint()
	}
	return "https://" + etcdBehind
}

func (m *EtcdMember) metrics() string { return fmt.Sprintf("http://127.0.0.1:%d", etcdMetricsPort) }

// DataDir is the folder of the member's data.
func (m *EtcdMember) DataDir() string { return filepath.Join(m.site.Dir(), "etcd.data") }

// Start starts the member and its front, again after they have ended; it finds its data as it was.
func (m *EtcdMember) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil && !m.proc.Exited() {
		return fmt.Errorf("start etcd at site %s: it runs", m.site.name)
	}
	p, err := m.site.Start("etcd", m.site.Command(context.Background(), m.bin, m.args...))
	if err != nil {
		return err
	}
	m.proc = p
	if m.gate == nil || m.front != nil && !m.front.Exited() {
		return nil
	}
	m.front, err = m.site.Start("etcd-front", m.gate.Command(m.site, m.tls, strings.TrimPrefix(m.Endpoint(), "https://"), etcdBehind))
	return err
}

// Kill ends the member and its front, as a power cut would.
func (m *EtcdMember) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proc.Kill()
	if m.front != nil {
		m.front.Kill()
	}
}

// Ctl runs etcdctl with the member's certificate, at the member itself, past what is in front of
// it: what who runs the machine can do. It returns the output.
func (m *EtcdMember) Ctl(ctx context.Context, args ...string) (string, error) {
	bin, err := m.site.stage.program("etcdctl")
	if err != nil {
		return "", err
	}
	c := m.site.Command(ctx, bin, append([]string{"--endpoints", m.listens(), "--insecure-skip-tls-verify", "--cert", m.tls.Cert, "--key",
		m.tls.Key},
		args...)...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("etcdctl %s at site %s: %w: %s", args[0], m.site.name, err, errs.String())
	}
	return out.String(), nil
}

// Front is the process in front of the member, nil if there is none.
func (m *EtcdMember) Front() *Proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.front
}

// Proc is the member's process of the latest Start, to kill, stop and continue.
func (m *EtcdMember) Proc() *Proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// Ready waits until the member says that it is healthy: it has a leader and commits; and until its
// front accepts connections.
func (m *EtcdMember) Ready(ctx context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: m.site.DialContext}}
	defer client.CloseIdleConnections()
	if err := awaitHTTP(ctx, client, m.metrics()+"/health", m.Proc()); err != nil {
		return err
	}
	for front := m.Front(); front != nil; {
		conn, err := m.site.DialContext(ctx, "tcp", strings.TrimPrefix(m.Endpoint(), "https://"))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for what is in front of etcd at site %s: %w; its log ends: %s", m.site.name, ctx.Err(), front.tail())
		case <-front.done:
			return fmt.Errorf("wait for what is in front of etcd at site %s: it has ended: %w; its log ends: %s", m.site.name, front.err,
				front.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
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
