// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/admitcmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/cmd/weir/pkicmd"
	"github.com/weir-storage/weir/cmd/weir/sitecmd"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
)

// lockedBuffer is a log that a running gateway writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// trial is a federation on loopback: a real registry, and gateways that run in this process.
type trial struct {
	t        *testing.T
	dir      string
	registry string
}

func (r *trial) path(name string) string { return filepath.Join(r.dir, name) }

// weir runs a command line. Commands connect as they do outside tests.
func (r *trial) weir(ctx context.Context, log *lockedBuffer, out *bytes.Buffer, args []string) int {
	sh := &cli.Shell{
		In: strings.NewReader(""), Out: out, Err: log, Getenv: func(string) string { return "" }, Version: "of a test",
		Now: time.Now, Boottime: machine.Boottime, Pause: machine.Pause, Random: rand.Reader,
	}
	connect := func(n access.Connection) (*access.Client, error) { return access.Connect(n, time.Now) }
	root := sh.Root(&cobra.Command{Use: "weir"}, Command(sh), pkicmd.Command(sh), sitecmd.Command(sh, connect),
		volumecmd.Command(sh, connect, admitcmd.Command), statuscmd.Command(sh, connect), statuscmd.FailoverCommand(sh, connect))
	return sh.Run(ctx, root, args)
}

// run runs a person's command. It adds the configuration of a gateway if name is not empty.
func (r *trial) run(name string, args ...string) (int, string, string) {
	var log lockedBuffer
	var out bytes.Buffer
	if name != "" {
		args = append(args, "--config", r.path(name+".yaml"))
	}
	code := r.weir(r.t.Context(), &log, &out, args)
	return code, out.String(), log.String()
}

func (r *trial) must(name string, args ...string) string {
	r.t.Helper()
	code, out, errs := r.run(name, args...)
	if code != cli.ExitOK {
		r.t.Fatalf("weir %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

func newTrial(t *testing.T) *trial {
	r := &trial{t: t, dir: t.TempDir()}
	r.must("", "pki", "init", "--dir", r.dir, "--federation", "demo")
	r.must("", "pki", "issue", "--dir", r.dir, "--organization", "SURF", "--site", "ams", "--gateway", "registry-1", "--host", "127.0.0.1")
	server := etcdtest.Start(t, &etcdtest.Files{CA: r.path("ca.crt"), Cert: r.path("registry-1.crt"), Key: r.path("registry-1.key")})
	r.registry = server.Endpoint
	return r
}

// configure writes NAME.yaml of a gateway at a site.
func (r *trial) configure(name, site string) {
	r.t.Helper()
	r.must("", "pki", "issue", "--dir", r.dir, "--organization", "SURF", "--site", site, "--gateway", name, "--host", "127.0.0.1")
	text := fmt.Sprintf(`
federation: demo
organization: SURF
site: %[2]s
gateway: %[1]s
listen: {grpc: "127.0.0.1:0", nfs: "127.0.0.1:0"}
registry: {endpoints: [%[3]s]}
tls: {ca: ca.crt, cert: %[1]s.crt, key: %[1]s.key}
siteKey: %[2]s.site.key
pool: {path: pool-%[1]s, size: 1Gi}
store: {dir: store-%[2]s}
promise: 900ms
aliveFor: 2s
logLevel: debug
`, name, site, r.registry)
	if err := os.WriteFile(r.path(name+".yaml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// start runs a gateway until stop is called, which returns its exit code and log.
func (r *trial) start(name string, flags ...string) (stop func() (int, string)) {
	var log lockedBuffer
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- r.weir(ctx, &log, new(bytes.Buffer), append([]string{"gateway", "--config", r.path(name + ".yaml")}, flags...))
	}()
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		return <-code, log.String()
	})
	r.t.Cleanup(func() {
		if _, text := stop(); r.t.Failed() {
			r.t.Logf("gateway %s:\n%s", name, text)
		}
	})
	return stop
}

// await asks for the status until ok returns true. Its deadline is only a guard against hanging.
func (r *trial) await(name, what string, ok func(statuscmd.Report) bool) statuscmd.Report {
	r.t.Helper()
	last := ""
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		code, out, errs := r.run(name, "status", "-o", "json")
		last = out + errs
		var rep statuscmd.Report
		if code == cli.ExitOK {
			if err := json.Unmarshal([]byte(out), &rep); err != nil {
				r.t.Fatal(err)
			}
			if ok(rep) {
				return rep
			}
		}
	}
	r.t.Fatalf("%s: not so: %s", what, last)
	return statuscmd.Report{}
}

// Two gateways run as the command builds them: a person makes a volume and moves it without loss,
// and the gateways end cleanly.
func TestGateways(t *testing.T) {
	r := newTrial(t)
	r.configure("ams-1", "ams")
	r.configure("fra-1", "fra")
	stopAms, stopFra := r.start("ams-1"), r.start("fra-1")
	r.await("ams-1", "two gateways are alive", func(p statuscmd.Report) bool {
		alive := 0
		for _, g := range p.Gateways {
			if g.Alive && g.Answered {
				alive++
			}
		}
		return alive == 2
	})
	file := r.path("volume.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(clitest.Manifest, "[fra]", "[ams]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := r.must("ams-1", "volume", "create", "-f", file); !strings.Contains(out, "home   ams-1 (site ams)") {
		t.Fatalf("got %s", out)
	}
	ready := func(home string) func(statuscmd.Report) bool {
		return func(p statuscmd.Report) bool {
			return len(p.Volumes) == 1 && p.Volumes[0].State == statuscmd.StateReady && p.Volumes[0].Home == home &&
				len(p.Volumes[0].Members) == 2
		}
	}
	r.await("ams-1", "the volume is ready at ams", ready("ams-1"))
	if out := r.must("ams-1", "volume", "admit", "data", "--client", "127.0.0.1"); !strings.Contains(out,
		"at site ams\n  mount -t nfs4 -o vers=4.2,port=") {
		t.Errorf("got %s", out)
	}
	if out := r.must("ams-1", "failover", "data", "--to", "fra"); !strings.Contains(out, "volume data: home is fra-1 (fra), epoch ") {
		t.Errorf("got %s", out)
	}
	r.await("ams-1", "the volume is ready at fra", ready("fra-1"))

	for name, stop := range map[string]func() (int, string){"ams-1": stopAms, "fra-1": stopFra} {
		if code, log := stop(); code != cli.ExitOK || !strings.Contains(log, "gateway ended") {
			t.Errorf("%s ended with %d", name, code)
		}
	}
}

// probe asks a gateway's health until it answers with code, and returns what it says.
func (r *trial) probe(address, path string, code int) string {
	r.t.Helper()
	last := ""
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			last = err.Error()
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it was read
		if last = answer.Status + " " + string(text); answer.StatusCode == code {
			return string(text)
		}
	}
	r.t.Fatalf("%s answers %s, want %d", path, last, code)
	return ""
}

// A gateway that waits for the registry is alive and not ready. After it has read the registry it
// is both. Flags come before the file.
func TestGatewayHealth(t *testing.T) {
	r := newTrial(t)
	r.configure("ams-1", "ams")
	good, err := os.ReadFile(r.path("ams-1.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("ams-1.yaml"), append(good, "capacity: 40Ti\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return l.Addr().String()
	}
	address := free()
	stop := r.start("ams-1", "--health", address, "--registry", "https://127.0.0.1:1")
	r.probe(address, "/healthz", http.StatusOK)
	if text := r.probe(address, "/readyz", http.StatusServiceUnavailable); !strings.Contains(text, "the registry has not told yet") ||
		!strings.Contains(text, "NFS is not served yet") {
		t.Errorf("it says %s", text)
	}
	if code, log := stop(); code != cli.ExitOK {
		t.Errorf("ended with %d:\n%s", code, log)
	}

	address = free()
	stop = r.start("ams-1", "--health", address)
	r.probe(address, "/readyz", http.StatusOK)
	if out := r.must("ams-1", "site", "list"); !strings.Contains(out, "40Ti") {
		t.Errorf("the site gives %s", out)
	}
	if code, _, errs := r.run("ams-1", "gateway", "--health", address); code != cli.ExitError || !strings.Contains(errs, "--health") &&
		!strings.Contains(errs, "pool.path") {
		t.Errorf("another on the same port: exit %d, %s", code, errs)
	}
	if code, log := stop(); code != cli.ExitOK {
		t.Errorf("ended with %d:\n%s", code, log)
	}
}

// A gateway does not start when something around it is wrong, and says what.
func TestGatewayRefusesToStart(t *testing.T) {
	r := newTrial(t)
	r.configure("ams-1", "ams")
	good, err := os.ReadFile(r.path("ams-1.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, with, want string }{
		{"organization: SURF", "organization: DFN",
			`organization: "DFN": the certificate tls.cert (` + r.path("ams-1.crt") + `) says "SURF"`},
		{"cert: ams-1.crt", "cert: registry-1.crt", "give the certificate and the key that were issued together"},
		{"ca: ca.crt", "ca: none.crt", "tls: load certificate: open " + r.path("none.crt")},
		{"store-ams", "ca.crt", "store.dir: "},
		{"path: pool-ams-1", "path: ca.crt", "pool.path: open pool "},
		{"siteKey: ams.site.key", "siteKey: ca.crt", "siteKey: file " + r.path("ca.crt")},
		{`nfs: "127.0.0.1:0"`, `nfs: "127.0.0.1:99999"`, `listen.nfs: "127.0.0.1:99999": `},
	} {
		text := strings.Replace(string(good), c.old, c.with, 1)
		if text == string(good) {
			t.Fatalf("no %q in the configuration", c.old)
		}
		if err := os.WriteFile(r.path("bad.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := r.run("bad", "gateway"); code != cli.ExitError || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d\n%s\nwant … %s …", c.with, code, errs, c.want)
		}
	}
}
