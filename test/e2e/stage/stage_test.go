// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 60 * time.Second

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// TestStage walks through the life of one stage, which is built once, because that takes the most
// time.
func TestStage(t *testing.T) {
	s := Test(t, "a", "b", "c")
	guests := map[string]*Guest{}
	var mu sync.Mutex
	t.Run("guests boot", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, site := range []string{"a", "b"} {
			wg.Go(func() {
				g, err := s.Site(site).Guest(bounded(t), "g", 0)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				guests[site] = g
				mu.Unlock()
			})
		}
		wg.Wait()
	})
	if t.Failed() {
		return
	}
	t.Run("link", func(t *testing.T) { testLink(t, s) })
	t.Run("cuts", func(t *testing.T) { testCuts(t, s) })
	t.Run("guest", func(t *testing.T) { testGuest(t, s, guests["a"]) })
	t.Run("one processor", func(t *testing.T) { testOneProcessor(t, &guests["a"].machine) })
	t.Run("vector registers", func(t *testing.T) { testRegisters(t, &guests["a"].machine) })
	t.Run("vector registers, large state", func(t *testing.T) { testLargeState(t, s) })
	t.Run("guest across sites", func(t *testing.T) { testGuestNetwork(t, s, guests["b"]) })
	t.Run("processes", func(t *testing.T) { testProcesses(t, s) })
	t.Run("etcd", func(t *testing.T) { testEtcd(t, s) })
	t.Run("s3", func(t *testing.T) { testS3(t, s) })
	t.Run("guest loses power", func(t *testing.T) { testPowerCut(t, s, guests["a"]) })

	if left := s.Leftovers(); len(left) < 8 { // 4 namespaces, at least 4 processes
		t.Errorf("Leftovers before Down = %q: it must see what is there", left)
	}
	if err := s.Down(); err != nil {
		t.Error(err)
	}
	if left := s.Leftovers(); len(left) > 0 {
		t.Errorf("Leftovers after Down = %q, want none", left)
	}
	if err := s.Down(); err != nil {
		t.Errorf("second Down: %v", err)
	}
}

// roundTrip returns how long a byte takes from one site to another and back, on an open connection.
func roundTrip(t *testing.T, s *Stage, from, to string) time.Duration {
	t.Helper()
	l, err := s.Site(to).Listen("tcp", s.Site(to).Addr()+":9000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if conn, err := l.Accept(); err == nil {
			b := make([]byte, 1)
			for _, err := conn.Read(b); err == nil; _, err = conn.Read(b) {
				_, _ = conn.Write(b)
			}
			_ = conn.Close()
		}
	}()
	conn, err := s.Site(from).DialContext(bounded(t), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(hang))
	best := hang
	for range 5 {
		begin := time.Now()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begin))
	}
	return best
}

func testLink(t *testing.T, s *Stage) {
	ctx := bounded(t)
	t.Logf("round trip over perfect links: %v", roundTrip(t, s, "a", "b"))
	rx, tx, err := s.LinkBytes(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"a", "b"} {
		if err := s.SetLink(ctx, site, Link{Delay: 10 * time.Millisecond, Rate: 1e9}); err != nil {
			t.Fatal(err)
		}
	}
	if got := roundTrip(t, s, "a", "b"); got < 20*time.Millisecond {
		t.Errorf("round trip with 10 ms towards each site = %v, want at least 20ms", got)
	} else {
		t.Logf("round trip with 10 ms towards each site: %v", got)
	}
	rx2, tx2, err := s.LinkBytes(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if rx2-rx < 5*66 || tx2-tx < 5*66 { // five bytes, each in a segment with headers
		t.Errorf("site b's link counted %d bytes in, %d out, want at least 330", rx2-rx, tx2-tx)
	}
	for _, site := range []string{"a", "b"} {
		if err := s.SetLink(ctx, site, Link{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetLink(ctx, "a", Link{Loss: 1.5}); err == nil {
		t.Error("SetLink took a loss of 150 %")
	}
	if err := s.SetLink(ctx, "nowhere", Link{}); err == nil {
		t.Error("SetLink took a site that is not there")
	}
}

// reach pings from one site to another, often enough for a busy machine if an answer is expected.
func reach(t *testing.T, s *Stage, from, to string, expected bool) bool {
	t.Helper()
	conn, err := s.Site(from).DialContext(bounded(t), "udp", s.Site(to).Addr()+":9001")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	tries := 5
	if expected {
		tries = 100
	}
	for range tries {
		if _, err := conn.Write([]byte("x")); err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			return true
		}
	}
	return false
}

func testCuts(t *testing.T, s *Stage) {
	ctx := bounded(t)
	for _, site := range s.Sites() {
		var pc net.PacketConn
		if err := site.Do(func() (err error) {
			pc, err = net.ListenPacket("udp", site.Addr()+":9001")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pc.Close() }()
		go func() {
			b := make([]byte, 1)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = pc.WriteTo(b[:n], from)
			}
		}()
	}
	steps := []struct {
		what string
		do   func() error
		want string // pairs that reach each other
	}{
		{"nothing", func() error { return nil }, "ab ac bc"},
		{"cut b", func() error { return s.Cut(ctx, "b") }, "ac"},
		{"heal b", func() error { return s.Heal(ctx, "b") }, "ab ac bc"},
		{"cut pair a b", func() error { return s.CutPair(ctx, "a", "b") }, "ac bc"},
		{"cut pair a b again", func() error { return s.CutPair(ctx, "a", "b") }, "ac bc"},
		{"heal pair b a", func() error { return s.HealPair(ctx, "b", "a") }, "ab ac bc"},
		{"cut path c to a", func() error { return s.CutPath(ctx, "c", "a") }, "ab bc"},
		{"heal path c to a", func() error { return s.HealPath(ctx, "c", "a") }, "ab ac bc"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		var got []string
		for _, pair := range []string{"ab", "ac", "bc"} {
			if reach(t, s, pair[:1], pair[1:], strings.Contains(step.want, pair)) {
				got = append(got, pair)
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("after %s: %q reach each other, want %q", step.what, got, step.want)
		}
	}
}

func testGuest(t *testing.T, s *Stage, g *Guest) {
	ctx := bounded(t)
	id, err := g.place("echo found")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := g.finish(ctx, id); err != nil || res.Stdout != "found\n" {
		t.Errorf("a script that the machine was not told of: %+v, %v", res, err)
	}
	res, err := g.Run(ctx, `hostname; echo trouble >&2; echo "to the 'host'" >/x/line; sync /x/line; exit 7`)
	want := Result{Stdout: s.Prefix() + "-a-g\n", Stderr: "trouble\n", Code: 7}
	if err != nil || res != want {
		t.Errorf("Run = %+v, %v, want %+v", res, err, want)
	}
	if b, err := os.ReadFile(filepath.Join(g.Shared(), "line")); string(b) != "to the 'host'\n" {
		t.Errorf("shared file has %q, %v", b, err)
	}
	if _, err := g.Output(ctx, "false"); err == nil {
		t.Error("Output of false gave no error")
	}
	if out, err := g.Output(ctx, "grep -w nfs4 /proc/filesystems && echo x >/usr/weir-stage-test"); err != nil {
		t.Errorf("no NFS client in guest: %s, %v", out, err)
	}
	if _, err := os.Stat("/usr/weir-stage-test"); err == nil {
		t.Error("a guest wrote to the host's files")
	}

	job, err := g.Start(ctx, "echo begun; exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	for job.Stdout() != "begun\n" && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if err := job.Signal("TERM"); err != nil {
		t.Error(err)
	}
	if res, err := job.Wait(ctx); err != nil || res.Code != 128+15 {
		t.Errorf("Wait after TERM = %+v, %v, want code 143", res, err)
	}
	if err := g.Mount(ctx, s.Site("a").Addr(), "/nothing", "/mnt", "vers=4.2,retry=0"); err == nil {
		t.Error("a mount without a server worked")
	}
}

func testGuestNetwork(t *testing.T, s *Stage, g *Guest) {
	ctx := bounded(t)
	l, err := s.Site("a").Listen("tcp", s.Site("a").Addr()+":9002")
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan string, 8)
	big := strings.Repeat("0123456789abcdef", 4<<20/16)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers <- r.RemoteAddr
		_, _ = w.Write([]byte(big))
	})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	out, err := g.Output(ctx, fmt.Sprintf("curl -sS http://%s/ | wc -c", l.Addr()))
	if err != nil || strings.TrimSpace(out) != fmt.Sprint(len(big)) {
		t.Errorf("guest fetched %q bytes, %v, want %d", out, err, len(big))
	}
	if host, _, _ := net.SplitHostPort(<-peers); host != g.Addr() {
		t.Errorf("server at another site saw %s, want the guest's %s", host, g.Addr())
	}

	for _, step := range []struct {
		what    string
		do      func() error
		reached bool
	}{
		{"guest cut", func() error { return g.Cut(ctx) }, false},
		{"guest healed", func() error { return g.Heal(ctx) }, true},
		{"guest frozen and thawed", func() error {
			if err := g.Freeze(); err != nil {
				return err
			}
			if state := awaitState(ctx, g.proc.Pid(), "T"); state != "T" {
				t.Errorf("frozen guest is in state %s", state)
			}
			return g.Thaw()
		}, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		fetch := fmt.Sprintf("curl -sS -o /dev/null http://%s/", l.Addr())
		if !step.reached {
			fetch += " --connect-timeout 1"
		}
		if res, err := g.Run(ctx, fetch); err != nil || (res.Code == 0) != step.reached {
			t.Errorf("%s: fetch = %+v, %v, want success: %v", step.what, res, err, step.reached)
		}
	}
}

// awaitState waits until a process is in a state of proc_pid_stat(5) and returns its last one.
func awaitState(ctx context.Context, pid int, want string) string {
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err.Error()
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if state := rest[:1]; state == want || ctx.Err() != nil {
			return state
		}
		time.Sleep(time.Millisecond)
	}
}

func testProcesses(t *testing.T, s *Stage) {
	ctx := bounded(t)
	p, err := s.Site("c").Start("sleeper", s.Site("c").Command(ctx, "bash", "-c", "echo awake; sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Cont(); err != nil {
		t.Error(err)
	}
	if p.Exited() {
		t.Error("it has exited early")
	}
	p.Kill()
	if !p.Exited() || p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("after Kill: %v", p.cmd.ProcessState)
	}
	out, err := s.Site("c").Command(ctx, "ip", "-br", "addr", "show", "dev", "lan0").Output()
	if err != nil || !strings.Contains(string(out), s.Site("c").Addr()) {
		t.Errorf("a command at site c sees %q, %v", out, err)
	}
}

func testEtcd(t *testing.T, s *Stage) {
	ctx := bounded(t)
	ca, err := NewAuthority(filepath.Join(s.Dir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]TLS{}
	for _, site := range s.Sites() {
		if files[site.Name()], err = ca.Issue("etcd-"+site.Name(), site.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	e, err := s.StartEtcd(ctx, nil, files, s.Sites()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd is ready after %v", time.Since(begin))

	// A client at site b, which has to show a certificate, keeps working while the member at a is
	// gone and after it is back.
	config, err := files["b"].ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	dial := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return s.Site("b").DialContext(ctx, "tcp", addr)
	})
	client, err := clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints()[1:], TLS: config, DialOptions: []grpc.DialOption{dial}, Context: ctx,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	e.Member("a").Kill()
	for { // an election may be due
		putCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err = client.Put(putCtx, "key", "value")
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Member("a").Start(); err != nil {
		t.Fatal(err)
	}
	if err := e.Ready(ctx); err != nil {
		t.Error(err)
	}
	if err := e.Member("a").Start(); err == nil {
		t.Error("a member was started twice")
	}
	if _, err := s.StartEtcd(ctx, nil, nil, s.Sites()...); err == nil {
		t.Error("etcd was started without certificates")
	}
}

func testS3(t *testing.T, s *Stage) {
	ctx := bounded(t)
	site := s.Site("b")
	s3, err := s.StartS3(ctx, site, "access", "secret-of-the-stage")
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(s3.Addr(), &minio.Options{
		Creds:     credentials.NewStaticV4("access", "secret-of-the-stage", ""),
		Transport: &http.Transport{DialContext: site.DialContext},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.MakeBucket(ctx, "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutObject(ctx, "bucket", "folder/object", strings.NewReader("contents"), 8, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(s3.Dir(), "bucket/folder/object")); string(b) != "contents" {
		t.Errorf("object's file has %q, %v", b, err)
	}
	s3.Proc().Kill()
	if err := s3.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s3.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := client.StatObject(ctx, "bucket", "folder/object", minio.StatObjectOptions{}); err != nil || info.Size != 8 {
		t.Errorf("object after restart: %+v, %v", info, err)
	}
}

func testPowerCut(t *testing.T, s *Stage, g *Guest) {
	ctx := bounded(t)
	job, err := g.Start(ctx, "sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	g.Kill()
	if _, err := job.Wait(ctx); err == nil {
		t.Error("a job outlived its guest")
	}
	if _, err := g.Run(ctx, "true"); err == nil {
		t.Error("a dead guest took a command")
	}
	again, err := s.Site("a").Guest(ctx, "g", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Site("a").Guest(ctx, "g", 0); err == nil {
		t.Error("two guests of one name")
	}
	if again.Addr() != g.Addr() || again.Name() != g.Name() {
		t.Errorf("guest came back as %s %s, want %s %s", again.Name(), again.Addr(), g.Name(), g.Addr())
	}
	if out, err := again.Output(ctx, "cat /x/line"); err != nil || out != "to the 'host'\n" {
		t.Errorf("shared file after power cut: %q, %v", out, err)
	}
	if err := again.Down(ctx); err != nil {
		t.Error(err)
	}
}
