// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// operator is a running `weir operator`.
type operator struct {
	*rig
	cmd     *exec.Cmd
	log     string // file
	metrics string // URL
	done    chan struct{}
	stop    sync.Once
}

// start runs one, as the chart does.
func (r *rig) start(kubeconfig string) *operator {
	r.t.Helper()
	address := freePort(r.t)
	o := &operator{rig: r, log: filepath.Join(r.t.TempDir(), "operator.log"), metrics: "https://" + address + "/metrics",
		done: make(chan struct{})}
	log, err := os.Create(o.log)
	r.ok(err)
	o.cmd = exec.Command(r.program, "operator", "--federation="+federationName, "--organization="+organization, "--site="+here,
		"--registry="+r.server.Endpoint,
		"--ca="+r.files.CA, "--cert="+r.files.Cert, "--key="+r.files.Key, "--kubeconfig="+kubeconfig, "--namespace="+metav1.NamespaceSystem,
		"--lent-store="+lentStore, "--leader-elect", "--metrics="+address)
	o.cmd.Stderr, o.cmd.Env = log, r.env
	r.ok(o.cmd.Start())
	go func() {
		defer close(o.done)
		_ = o.cmd.Wait()
		_ = log.Close()
	}()
	r.t.Cleanup(o.end)
	return o
}

// end ends it as Kubernetes does, and tells what it complained of if the test has failed.
func (o *operator) end() {
	o.stop.Do(func() {
		_ = o.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-o.done:
		case <-time.After(time.Minute):
			o.t.Errorf("the operator does not end on SIGTERM")
			_ = o.cmd.Process.Kill()
			<-o.done
		}
		if text, err := os.ReadFile(o.log); err == nil && o.t.Failed() {
			lines := strings.Split(string(text), "\n")
			o.t.Logf("the operator's log ends:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
}

// alive fails the test when the process is gone.
func (o *operator) alive() {
	o.t.Helper()
	select {
	case <-o.done:
		text, _ := os.ReadFile(o.log)
		o.t.Fatalf("the operator ended: %v\n%s", o.cmd.ProcessState, text[max(0, len(text)-4000):])
	default:
	}
}

// memory is what the process has in memory now and had at most, in MiB.
func (o *operator) memory() (now, most int) {
	o.t.Helper()
	o.alive()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	o.ok(err)
	field := func(name string) int {
		m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
		if m == nil {
			o.t.Fatalf("no %s in /proc/%d/status", name, o.cmd.Process.Pid)
		}
		n, err := strconv.Atoi(string(m[1]))
		o.ok(err)
		return (n + 512) / 1024
	}
	return field("VmRSS"), field("VmHWM")
}

// sample is one value of a metric.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

var label = regexp.MustCompile(`([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"`)

// samples reads those of the Prometheus text format whose name is one of names.
func samples(text []byte, names ...string) []sample {
	var out []sample
	for line := range bytes.Lines(text) {
		for _, name := range names {
			rest, ok := bytes.CutPrefix(line, []byte(name+"{"))
			i := bytes.LastIndexByte(rest, '}')
			if !ok || i < 0 {
				continue
			}
			s := sample{name: name, labels: map[string]string{}}
			for _, m := range label.FindAllSubmatch(rest[:i], -1) {
				s.labels[string(m[1])] = string(m[2])
			}
			var err error
			if s.value, err = strconv.ParseFloat(string(bytes.TrimSpace(rest[i+1:])), 64); err == nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// pulse is what the operator says of itself.
type pulse struct {
	reconciles map[string]int // by controller: those that came to an end, not those that wait for something
	busy       int            // objects that are being looked at or are to be at once
	failed     int            // reconciles that ended with an error
}

// pulse reads the operator's metrics; false while it does not serve them.
func (o *operator) pulse() (pulse, bool) {
	o.t.Helper()
	o.alive()
	text, err := get(o.t.Context(), o.reader, o.metrics, "")
	if err != nil {
		return pulse{}, false
	}
	p := pulse{reconciles: map[string]int{}}
	for _, s := range samples(text, "controller_runtime_reconcile_total", "controller_runtime_reconcile_errors_total",
		"controller_runtime_active_workers", "workqueue_depth") {
		switch s.name {
		case "controller_runtime_reconcile_total":
			switch c := s.labels["controller"]; c {
			case "site", "storageagreement", "storagerequest": // which are looked at again
				p.reconciles[c] += int(s.value)
			default:
				if s.labels["result"] == "success" {
					p.reconciles[c] += int(s.value)
				}
			}
		case "controller_runtime_reconcile_errors_total":
			p.failed += int(s.value)
		default:
			p.busy += int(s.value)
		}
	}
	return p, true
}

// idle waits until the operator has nothing to do and has looked at that many more objects of the
// controllers than at since.
func (o *operator) idle(since pulse, more map[string]int) pulse {
	o.t.Helper()
	var p pulse
	o.until("wait for the operator", func() (bool, string) {
		var ok bool
		if p, ok = o.pulse(); !ok {
			return false, "it does not serve its metrics"
		}
		for controller, n := range more {
			if p.reconciles[controller]-since.reconciles[controller] < n {
				ok = false
			}
		}
		return ok && p.busy == 0, fmt.Sprintf("it has looked at %v, before that at %v, wanted are %v more; %d wait or are worked on",
			p.reconciles, since.reconciles, more, p.busy)
	})
	return p
}

// written counts by the API server's own metrics what requests to write there were of the kinds
// that the operator's role lets it write, but for the lease of who leads.
func (r *rig) written() map[string]int {
	r.t.Helper()
	text, err := r.get("/metrics", "")
	r.ok(err)
	out := map[string]int{}
	for _, s := range samples(text, "apiserver_request_total") {
		l := s.labels
		switch l["verb"] {
		case "GET", "LIST", "WATCH", "CONNECT", "WATCHLIST", "":
			continue
		}
		switch l["resource"] {
		case "persistentvolumes", "persistentvolumeclaims", "events":
		default:
			if l["group"] != v1alpha1.Group {
				continue
			}
		}
		what := l["verb"] + " " + l["resource"]
		if l["subresource"] != "" {
			what += "/" + l["subresource"]
		}
		out[what] += int(s.value)
	}
	return out
}

// table lists a kind as kubectl shows it.
func (r *rig) table(kind string) (*metav1.Table, error) {
	text, err := r.get("/apis/"+v1alpha1.GroupVersion.String()+"/"+kind+"?includeObject=None",
		"application/json;as=Table;v=v1;g=meta.k8s.io")
	if err != nil {
		return nil, err
	}
	t := new(metav1.Table)
	return t, json.Unmarshal(text, t)
}

func (r *rig) get(path, accept string) ([]byte, error) {
	c, err := rest.HTTPClientFor(r.cfg)
	if err != nil {
		return nil, err
	}
	return get(r.t.Context(), c, r.host+path, accept)
}

func get(ctx context.Context, c *http.Client, url, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return io.ReadAll(res.Body)
}
