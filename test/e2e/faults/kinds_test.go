// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// poolSize is so small that a burst of writes fills a pool whose store does not answer.
const poolSize = "160Mi"

// kind is a kind of fault. begin makes it, and returns what undoes it, and whom it hit.
type kind struct {
	name  string
	begin func(r *run) (undo func(), what string)
}

var kinds = []kind{
	{"gateway killed", gatewayKilled}, {"site killed", siteKilled}, {"site cut off", siteCut}, {"cut one way", cutOneWay},
	{"gateway stopped", gatewayStopped}, {"etcd killed", etcdKilled}, {"store killed", storeKilled}, {"pool full", poolFull},
	{"disk full", diskFull}, {"disk fails", diskFails}, {"tail damaged", tailDamaged}, {"planned move", plannedMove},
	{"packets lost", packetsLost},
}

// site draws a site.
func (r *run) site() string { return r.Bed.Names()[r.rand.IntN(len(r.Bed.Names()))] }

func (r *run) must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

func gatewayKilled(r *run) (func(), string) {
	site := r.site()
	r.Bed.Site(site).Gateway().Kill()
	return func() {
		r.discard(site)
		r.must(r.Bed.Site(site).StartGateway())
	}, site
}

// discard is a person who needs no copy that was set aside: since then the volume was whole, and no
// takeover was forced.
func (r *run) discard(site string) {
	r.T.Helper()
	all, err := filepath.Glob(filepath.Join(r.Bed.Site(site).PoolDir(), "volumes", "salvage-*"))
	r.must(err)
	for _, folder := range all {
		r.T.Logf("nobody needs %s of %s", filepath.Base(folder), site)
		r.must(os.RemoveAll(folder))
	}
}

// siteKilled kills the machines there too. Afterwards a new machine goes on.
func siteKilled(r *run) (func(), string) {
	site := r.site()
	if w := r.writers[site]; w != nil {
		w.lost = true
		delete(r.writers, site)
	}
	r.Bed.Site(site).Kill()
	return func() {
		r.must(r.Bed.Site(site).Return(r.Ctx))
		if slices.Contains(writing, site) {
			r.write(site)
		}
	}, site
}

func siteCut(r *run) (func(), string) {
	site := r.site()
	r.must(r.Bed.Stage.Cut(r.Ctx, site))
	return func() { r.must(r.Bed.Stage.Heal(r.Ctx, site)) }, site
}

func cutOneWay(r *run) (func(), string) {
	from := r.site()
	to := r.site()
	for to == from {
		to = r.site()
	}
	r.must(r.Bed.Stage.CutPath(r.Ctx, from, to))
	return func() { r.must(r.Bed.Stage.HealPath(r.Ctx, from, to)) }, from + " to " + to
}

func gatewayStopped(r *run) (func(), string) {
	site := r.site()
	p := r.Bed.Site(site).Gateway()
	r.must(p.Stop())
	return func() { r.must(p.Cont()) }, site
}

func etcdKilled(r *run) (func(), string) {
	site := r.site()
	m := r.Bed.Etcd.Member(site)
	m.Kill()
	return func() { r.must(m.Start()) }, site
}

func storeKilled(r *run) (func(), string) {
	site := r.site()
	r.Bed.Site(site).S3.Proc().Kill()
	return func() { r.startStore(site) }, site
}

func (r *run) startStore(site string) {
	r.T.Helper()
	r.must(r.Bed.Site(site).S3.Start())
	r.must(r.Bed.Site(site).S3.Ready(r.Ctx))
}

// poolFull writes more than a pool holds while its store does not answer. The writer waits until it
// does.
func poolFull(r *run) (func(), string) {
	site := r.site()
	r.Bed.Site(site).S3.Proc().Kill()
	w := r.writers[writing[r.rand.IntN(len(writing))]]
	w.bursts++
	name := fmt.Sprintf("burst-%d", w.bursts)
	burst := fmt.Sprintf("%s fill %s/%s 200 %s && rm %[2]s/%[3]s", r.Tool, w.dir, name, name)
	job, err := w.guest.Start(r.Ctx, burst)
	r.must(err)
	return func() {
		ctx, cancel := context.WithTimeout(r.Ctx, guard)
		defer cancel()
		_, err := r.Bed.Await(ctx, "b", "v", func(s bed.Status) bool {
			said := s.Message
			for _, c := range s.Replicas {
				if c.Site == site {
					said += c.Problem
				}
			}
			return strings.Contains(said, "full")
		})
		if err != nil {
			r.T.Fatalf("the pool of %s did not become full: %v", site, err)
		}
		r.startStore(site)
		out, err := job.Wait(r.Ctx)
		if err != nil || out.Code != 0 {
			r.T.Fatalf("a burst at a full pool: %v, %d: %s%s", err, out.Code, out.Stdout, out.Stderr)
		}
	}, site
}

// inject makes system calls of a site's gateway fail, with strace. Sockets use others.
func (r *run) inject(site, calls, with string) (undo func()) {
	r.T.Helper()
	pid := fmt.Sprint(r.Bed.Site(site).Gateway().Pid())
	said := filepath.Join(r.T.TempDir(), "strace")
	cmd := exec.CommandContext(r.Ctx, "strace", "-f", "-q", "-o", said, "-e", "trace="+calls, "-e", "inject="+calls+":error="+with,
		"-p", pid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.must(cmd.Start())
	gateway := r.Bed.Site(site).Gateway()
	return func() {
		failed := func() bool {
			text, err := os.ReadFile(said)
			return err == nil && bytes.Contains(text, []byte("(INJECTED)"))
		}
		for end := time.Now().Add(guard); !failed(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) || gateway.Exited() {
				text, _ := os.ReadFile(said)
				r.T.Fatalf("no %s of the gateway of %s failed: strace says %s", calls, site, text)
			}
		}
		r.must(cmd.Process.Signal(syscall.SIGINT)) // it lets go of the gateway
		_ = cmd.Wait()                             // it was interrupted
		time.Sleep(time.Second)
		if gateway.Exited() { // a person, or Kubernetes, starts it again
			r.T.Logf("the gateway of %s ended", site)
			r.must(r.Bed.Site(site).StartGateway())
		}
	}
}

// diskFull makes writes to logs fail as on a disk without room.
func diskFull(r *run) (func(), string) {
	site := r.site()
	return r.inject(site, "pwrite64", "ENOSPC"), site
}

// diskFails makes writes to logs, and all fsyncs, fail as on a disk that ails.
func diskFails(r *run) (func(), string) {
	site := r.site()
	return r.inject(site, "pwrite64,fsync,fdatasync", "EIO"), site
}

// tailDamaged ends a gateway as a power cut does, and damages what it wrote last.
func tailDamaged(r *run) (func(), string) {
	site := r.site()
	at := r.Bed.Site(site)
	at.Gateway().Kill()
	return func() {
		r.damage(at.PoolDir())
		r.must(at.StartGateway())
	}, site
}

// damage changes a byte of the last ones of a log's newest segment.
func (r *run) damage(pool string) {
	r.T.Helper()
	var newest string
	r.must(filepath.WalkDir(pool, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".seg") && !strings.Contains(path, "salvage") &&
			filepath.Base(path) > filepath.Base(newest) {
			newest = path
		}
		return err
	}))
	if newest == "" {
		r.T.Fatalf("no segment in %s", pool)
	}
	f, err := os.OpenFile(newest, os.O_RDWR, 0)
	r.must(err)
	i, err := f.Stat()
	r.must(err)
	at := max(0, i.Size()-1-r.rand.Int64N(200))
	p := make([]byte, 1)
	_, err = f.ReadAt(p, at)
	r.must(err)
	p[0] ^= 0x10
	_, err = f.WriteAt(p, at)
	r.must(err)
	r.must(f.Close())
}

func plannedMove(r *run) (func(), string) {
	site := r.site()
	out, err := r.Bed.Weir(r.Ctx, "a", "failover", "v", "--to", site)
	if err != nil {
		r.T.Fatalf("planned move: %v: %s", err, out)
	}
	return func() {}, site
}

func packetsLost(r *run) (func(), string) {
	site := r.site()
	r.must(r.Bed.Stage.SetLink(r.Ctx, site, stage.Link{Loss: 0.05}))
	return func() { r.must(r.Bed.Stage.SetLink(r.Ctx, site, stage.Link{})) }, site
}
