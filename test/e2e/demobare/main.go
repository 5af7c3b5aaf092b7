// SPDX-License-Identifier: Apache-2.0

// Command demobare shows Weir's main job on one machine: three sites with a gateway, a store and a
// registry member each; a volume with copies at all three; machines at two of them that work on it
// over plain NFS; and the loss of a whole site under load.
//
//	go run ./test/e2e/demobare
//
// It needs root on Debian, installs what is missing, and leaves nothing behind but caches. With
// KEEP=1 in the environment it leaves everything running at the end, says how to use it, and waits
// for Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/playbill"
	"github.com/weir-storage/weir/test/e2e/stage"
)

func main() { playbill.Run(demo) }

// show is the demonstration while it runs.
type show struct {
	*playbill.Play
	bed  *bed.Bed
	tool string
}

func demo(ctx context.Context, p *playbill.Play, dir string) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := &show{Play: p}
	s.Title("Three sites, joined by a wide-area network that can be slowed and cut")
	s.bed, err = bed.Up(ctx, bed.Config{Sites: []string{"a", "b", "c"}, StateDir: dir, Progress: os.Stderr, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if derr := s.bed.Down(); derr != nil {
			err = errors.Join(err, derr)
		}
	}()
	if s.tool, err = s.bed.Tool(ctx); err != nil {
		return err
	}
	if err := s.act(ctx); err != nil {
		return err
	}
	playbill.Keep(ctx, func() {
		fmt.Printf("\nEverything is left running. Ctrl-C ends it and cleans up.\n\n%s\n", s.bed.HowTo("b"))
	})
	return nil
}

func (s *show) act(ctx context.Context) error {
	s.Title("Declare a volume: three copies, a write is safe when two sites have it")
	manifest := bed.Manifest("shared", 2, "a")
	fmt.Print(playbill.Indent(manifest))
	if err := s.bed.Create(ctx, "a", manifest); err != nil {
		return err
	}
	a, b, err := s.guests(ctx)
	if err != nil {
		return err
	}
	list, err := s.copyTree(ctx, a)
	if err != nil {
		return err
	}
	if err := s.table(ctx, "a"); err != nil {
		return err
	}
	s.Title("20 ms between the sites")
	for _, site := range []string{"a", "b", "c"} {
		if err := s.bed.Stage.SetLink(ctx, site, stage.Link{Delay: 10 * time.Millisecond}); err != nil {
			return err
		}
	}
	if err := s.loseHome(ctx, b, list); err != nil {
		return err
	}
	if err := s.comeBack(ctx); err != nil {
		return err
	}
	if err := s.gatewayOnly(ctx); err != nil {
		return err
	}
	s.Facts()
	return nil
}

// guests boots a machine at a and one at b and mounts the volume at both.
func (s *show) guests(ctx context.Context) (a, b *stage.Guest, err error) {
	s.Title("A machine at site a and one at site b mount it with their kernels' NFS client")
	for _, x := range []struct {
		site string
		to   **stage.Guest
	}{{"a", &a}, {"b", &b}} {
		g, err := s.bed.Site(x.site).Guest(ctx, "work-"+x.site)
		if err != nil {
			return nil, nil, err
		}
		*x.to = g
		if _, err := s.bed.Site(x.site).Mount(ctx, g, "shared"); err != nil {
			return nil, nil, err
		}
		out, err := g.Output(ctx, "mount | grep /mnt/shared")
		if err != nil {
			return nil, nil, err
		}
		fmt.Println("  " + strings.TrimSpace(out))
		if !strings.Contains(out, "type nfs4") || !strings.Contains(out, "vers=4.") {
			return nil, nil, fmt.Errorf("machine at %s has no NFSv4 mount: %s", x.site, out)
		}
	}
	return a, b, nil
}

// copyTree copies the Go standard library into the volume at a. It returns the path of the list of
// its hashes, which every guest can read on the host.
func (s *show) copyTree(ctx context.Context, a *stage.Guest) (string, error) {
	s.Title("The machine at a copies the Go standard library's source tree into it")
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	begin := time.Now()
	// It copies sixteen files at a time, as a build or an unpacking job does.
	_, err = a.Output(ctx, fmt.Sprintf(`set -e; cd %s; mkdir /mnt/shared/go
find . -path ./cmd -prune -o -type d -print > /x/dirs; (cd /mnt/shared/go; xargs mkdir -p < /x/dirs)
find . -path ./cmd -prune -o -type f -print > /x/files; split -n r/16 /x/files /x/part.
pids=; for p in /x/part.*; do (set -o pipefail; tar -cf - -T $p | tar -xmf - --no-same-owner -C /mnt/shared/go) & pids="$pids $!"; done
for p in $pids; do wait $p; done; sync`, src))
	if err != nil {
		return "", err
	}
	took := time.Since(begin)
	out, err := a.Output(ctx,
		fmt.Sprintf("set -e; cd %s; find . -path ./cmd -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum > /x/list; "+
			"cd /mnt/shared/go; sha256sum --quiet -c /x/list; wc -l < /x/list; du -sm . | cut -f1", src))
	if err != nil {
		return "", fmt.Errorf("check the tree at a: %w", err)
	}
	counts := strings.Fields(out)
	if len(counts) != 2 {
		return "", fmt.Errorf("check the tree at a: it prints %q", out)
	}
	s.Fact("site a: %s files, %s MB, copied in %.1f s; every hash is right", counts[0], counts[1], took.Seconds())
	return filepath.Join(a.Shared(), "list"), nil
}

// table prints the output of `weir status` at a site.
func (s *show) table(ctx context.Context, site string) error {
	out, err := s.bed.Weir(ctx, site, "status", "shared")
	fmt.Print(playbill.Indent(out))
	return err
}

// loseHome kills the whole of site a while the machine at b writes, and checks that nothing is
// lost.
func (s *show) loseHome(ctx context.Context, b *stage.Guest, list string) error {
	hashes, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.Shared(), "list"), hashes, 0o644); err != nil {
		return err
	}
	s.Title("The machine at b writes lines, fsyncs each, and records them outside the volume; " +
		"then site a is lost: gateway, store, registry member, machine")
	before, err := s.bed.Status(ctx, "b", "shared")
	if err != nil {
		return err
	}
	job, err := b.Start(ctx, s.tool+" write /mnt/shared/journal /x/noted /x/stop")
	if err != nil {
		return err
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	s.bed.Site("a").Kill()
	lost := time.Now()
	after, err := s.bed.Await(ctx, "b", "shared", func(st bed.Status) bool {
		return st.Epoch > before.Epoch && st.HomeSite != "a" &&
			st.HomeSite != ""
	})
	if err != nil {
		return err
	}
	s.Fact("site a lost; %.1f s later site %s is home, in epoch %d after %d", time.Since(lost).Seconds(), after.HomeSite, after.Epoch,
		before.Epoch)
	if err := pause(ctx, 6*time.Second); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.Shared(), "stop"), nil, 0o644); err != nil {
		return err
	}
	r, err := job.Wait(ctx)
	if err != nil || r.Code != 0 {
		return fmt.Errorf("the writer at b: %w: exit code %d: %s", err, r.Code, r.Stderr)
	}
	s.Fact("the writer at b had no error and no remount: %s", strings.TrimSpace(r.Stdout))
	out, err := b.Output(ctx,
		s.tool+" verify /mnt/shared/journal /x/noted; cd /mnt/shared/go && sha256sum --quiet -c /x/list && echo right")
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out), "right") {
		return fmt.Errorf("check at b: %w: %s", err, out)
	}
	s.Fact("site b, without a: %s; every hash of the tree is right", strings.Split(strings.TrimSpace(out), "\n")[0])
	return s.table(ctx, "b")
}

// comeBack starts site a again and waits until it has everything.
func (s *show) comeBack(ctx context.Context) error {
	s.Title("Site a comes back")
	begin := time.Now()
	if err := s.bed.Site("a").Return(ctx); err != nil {
		return err
	}
	_, err := s.bed.Await(ctx, "b", "shared", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.Site == "a" {
				return (r.State == "Follower" || r.State == "Member") && r.LagBytes != nil && *r.LagBytes == 0
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	s.Fact("site a cut its log to what it shares with the home, caught up and rejoined in %.1f s", time.Since(begin).Seconds())
	return s.table(ctx, "b")
}

// gatewayOnly shows what is at risk when only the home acknowledges writes.
func (s *show) gatewayOnly(ctx context.Context) error {
	s.Title("A second volume, home at c, whose writes are safe when only c has them; then c is lost")
	if err := s.bed.Create(ctx, "c", bed.Manifest("scratch", 1, "c")); err != nil {
		return err
	}
	if _, err := s.bed.Await(ctx, "b", "scratch", func(st bed.Status) bool {
		return st.HomeSite == "c" &&
			st.State == "Ready"
	}); err != nil {
		return err
	}
	if err := pause(ctx, 6*time.Second); err != nil { // the home has reported once
		return err
	}
	s.bed.Site("c").Gateway().Kill()
	st, err := s.bed.Await(ctx, "b", "scratch", func(st bed.Status) bool { return st.State == "HomeLost" })
	if err != nil {
		return err
	}
	s.Fact("scratch is %s: %s", st.State, st.Message)
	if _, err := s.bed.Weir(ctx, "b", "failover", "scratch", "--to", "b"); err == nil {
		return errors.New("a volume that only its lost home acknowledged moved without anybody accepting the loss")
	} else {
		fmt.Println("  " + err.Error())
	}
	// A person of the organization that owns it gives that up.
	if _, err := s.bed.Weir(ctx, "c", "failover", "scratch", "--to", "b", "--accept-loss"); err != nil {
		return err
	}
	st, err = s.bed.Await(ctx, "b", "scratch", func(st bed.Status) bool { return st.HomeSite == "b" })
	if err != nil {
		return err
	}
	s.Fact("scratch moved to site %s only with --accept-loss, in epoch %d", st.HomeSite, st.Epoch)
	return s.bed.Site("c").StartGateway()
}

// keep leaves everything running until Ctrl-C.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
