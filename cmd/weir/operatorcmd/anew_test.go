// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/apiserver"
)

// program is set where this binary is not a test, but `weir operator`.
const program = "WEIR_OPERATOR_OF_A_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(program) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	sh := &cli.Shell{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Pause: machine.Pause,
		Boottime: machine.Boottime, Random: rand.Reader, Version: "test"}
	code := sh.Run(ctx, Command(sh), os.Args[1:])
	stop()
	os.Exit(code)
}

// door is a way to an API server, which can be shut.
type door struct {
	t       *testing.T
	to, at  string
	l       net.Listener
	mu      sync.Mutex
	through []net.Conn
}

func newDoor(t *testing.T, to string) *door {
	d := &door{t: t, to: to, at: "127.0.0.1:0"}
	d.open()
	d.at = d.l.Addr().String()
	t.Cleanup(d.shut)
	return d
}

func (d *door) open() {
	var lc net.ListenConfig
	l, err := lc.Listen(d.t.Context(), "tcp", d.at)
	if err != nil {
		d.t.Fatal(err)
	}
	d.l = l
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", d.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			d.mu.Lock()
			d.through = append(d.through, from, to)
			d.mu.Unlock()
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
}

func (d *door) shut() {
	_ = d.l.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.through {
		_ = c.Close()
	}
	d.through = nil
}

// running is an operator in a process of its own.
type running struct {
	t    *testing.T
	name string
	said chan string
}

// says waits until the operator's log has text. The limit ends what hangs.
func (r *running) says(text string) {
	r.t.Helper()
	for limit := time.After(3 * time.Minute); ; {
		select {
		case line, ok := <-r.said:
			if !ok {
				r.t.Fatalf("%s ended before it said %q", r.name, text)
			}
			r.t.Log(r.name, line)
			if strings.Contains(line, text) {
				return
			}
		case <-limit:
			r.t.Fatalf("%s does not say %q", r.name, text)
		}
	}
}

func start(t *testing.T, name string, args ...string) *running {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), program+"=1")
	if name == "second" { // the first one names itself
		cmd.Env = append(cmd.Env, candidateName+"="+name)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // it is killed then
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, name: name, said: make(chan string, 100000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(r.said)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.said <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Wait() // t's context has ended: the process ends
		<-read
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ends with %v", name, cmd.ProcessState)
		}
	})
	return r
}

// TestAPIServerIsAwayAndBack: the API server is away until the operator that leads loses its lease.
// Both operators begin anew in their processes when it is back. The one that led asks for the lease
// by its old name, so that nobody waits for it. Both end when they are told to, while it is away.
func TestAPIServerIsAwayAndBack(t *testing.T) {
	cfg := apiserver.Start(t)
	c, err := client.New(cfg, client.Options{Scheme: process.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(t, u.Host)
	dir := t.TempDir()
	args := append([]string{"--site", "ams", "--federation", "demo", "--registry", "http://127.0.0.1:1", "--namespace", "default",
		"--leader-elect", "--kubeconfig", kubeconfig(t, dir, cfg, d.at)}, certificate(t, dir)...)
	first := start(t, "first", args...)
	first.says("operator starts")
	works(t, c, "before")
	led := lease(t, c)
	second := start(t, "second", args...)
	second.says("operator starts")

	d.shut()
	first.says("begins anew, and waits until the API server answers")
	first.says("the API server does not answer; waiting for it")
	d.open()
	for _, r := range []*running{first, second} {
		r.says("operator starts")
	}
	works(t, c, "after")
	// Whoever leads now, it is one of the two: nobody came with a new name.
	if now := lease(t, c); now != led && now != second.name {
		t.Errorf("%q led before, %q leads after", led, now)
	}
	d.shut() // an operator that is told to end does so without an API server too
}

// works waits until an operator has seen a new GeoVolume.
func works(t *testing.T, c client.Client, name string) {
	t.Helper()
	size := resource.MustParse("1Gi")
	gv := &v1alpha1.GeoVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.GeoVolumeSpec{Size: &size}}
	if err := c.Create(t.Context(), gv); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Minute); len(gv.Status.Conditions) == 0; time.Sleep(50 * time.Millisecond) {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gv), gv); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("nobody sees the GeoVolume %s", name)
		}
	}
}

// lease is who leads.
func lease(t *testing.T, c client.Client) string {
	t.Helper()
	var l coordinationv1.Lease
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: process.OperatorLease}, &l); err != nil {
		t.Fatal(err)
	}
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// kubeconfig is a file that says how to reach the API server through a door.
func kubeconfig(t *testing.T, dir string, cfg *rest.Config, at string) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + at, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes the files of a certificate, and returns their flags.
func certificate(t *testing.T, dir string) []string {
	t.Helper()
	ca, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "ams-operator"}
	own, err := ca.Issue(id, nil, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for name, text := range map[string][]byte{"ca": root.Cert, "cert": own.Cert, "key": own.Key} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--"+name, path)
	}
	return flags
}

// TestEndsWithoutItsCaches: an operator that is told to end does so, also when controller-runtime
// does not.
func TestEndsWithoutItsCaches(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	hangs := make(chan struct{})
	defer close(hangs)
	w := watched{log: slog.New(slog.DiscardHandler), answers: func(context.Context) error { return errors.New("away") },
		pause: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil },
		anew:  func() error { return errors.New("it begins anew") }}
	err := w.run(ctx, func() error {
		end()
		<-hangs
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBeginsAnew: an operator begins anew when the API server was away, when it lost its lease, and
// when it failed while the API server was away. It does not after a moment's silence, nor after
// another error.
func TestBeginsAnew(t *testing.T) {
	errAnew, errOther := errors.New("anew"), errors.New("no rights")
	silent := func(from, to int) func(int) bool { return func(step int) bool { return step >= from && step < to } }
	for _, c := range []struct {
		name   string
		fails  error // of the operator; nil: it works on
		silent func(step int) bool
		want   error
	}{
		{"away", nil, silent(3, 20), errAnew},
		{"a moment's silence", nil, silent(3, 5), nil},
		{"its lease is lost", errors.New(lostLease), silent(0, 0), errAnew},
		{"an error while it is away", errOther, silent(0, math.MaxInt), errAnew},
		{"another error", errOther, silent(0, 0), errOther},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			var mu sync.Mutex
			step := 0
			w := watched{log: slog.New(slog.DiscardHandler), anew: func() error { return errAnew },
				pause: func(ctx context.Context, _ time.Duration) bool {
					mu.Lock()
					defer mu.Unlock()
					if step++; step > 40 && c.fails == nil {
						end()
					}
					return ctx.Err() == nil
				},
				answers: func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if c.silent(step) {
						return errors.New("connection refused")
					}
					return nil
				}}
			err := w.run(ctx, func() error {
				if c.fails == nil {
					<-ctx.Done()
				}
				return c.fails
			})
			if !errors.Is(err, c.want) {
				t.Errorf("run: %v, want %v", err, c.want)
			}
		})
	}
}
