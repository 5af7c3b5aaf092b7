// SPDX-License-Identifier: Apache-2.0

// Command demoexchange shows how three organizations lend each other storage, on one machine. Each
// has an authority of its own and Weir in real clusters, by its chart: A and C one cluster each, B
// two. All that is said is said with kubectl.
//
//	go run ./test/e2e/demoexchange
//
// It needs root on Debian, installs and builds what is missing, and leaves only caches behind. With
// KEEP=1 in the environment it leaves everything running at the end, prints how to use it, and
// waits for Ctrl-C.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/installed"
	"github.com/weir-storage/weir/test/e2e/kube"
	"github.com/weir-storage/weir/test/e2e/playbill"
)

func main() { playbill.Run(demo) }

// Sites: A's, both of B's, and C's.
const (
	siteA  = "a"
	siteB1 = "b1"
	siteB2 = "b2"
	siteC  = "c"
)

// show is the demonstration while it runs.
type show struct {
	*installed.Show
	first  string // the agreement of B with A about objects
	copies string // and that about copies
	sample []byte // of what A holds
}

func demo(ctx context.Context, p *playbill.Play, dir string) (err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	s := &show{Show: &installed.Show{Play: p, Source: filepath.Join(strings.TrimSpace(string(root)), "src")}}
	s.Title("Four Kubernetes clusters of three organizations: a of A, b1 and b2 of B, c of C")
	clusters, err := kube.Up(ctx, kube.Config{Sites: []string{siteA, siteB1, siteB2, siteC}, Guests: []string{siteB1, siteB2},
		StateDir: dir, Progress: os.Stderr, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			look, cancel := context.WithTimeout(context.Background(), time.Minute)
			err = errors.Join(err, clusters.Dump(look))
			cancel()
		}
		if derr := clusters.Down(); derr != nil {
			err = errors.Join(err, derr)
		}
	}()
	s.Title("helm install at each; every organization has an authority of its own, and A and C run a store for others")
	if s.Federated, err = installed.Install(ctx, clusters, installed.Config{
		Organizations: map[string]string{siteA: "A", siteB1: "B", siteB2: "B", siteC: "C"}, Members: []string{siteA, siteB1, siteC},
		Lends: map[string][]string{}, Stores: []string{siteA, siteC}, // copies are lent by agreement only
	}, func(format string, a ...any) { fmt.Printf("  "+format+"\n", a...) }); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.offer, s.agree, s.use, s.lose, s.comeBack, s.account, s.end} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.Facts()
	playbill.Keep(ctx, func() {
		fmt.Printf("\nIt runs until Ctrl-C. To look at site a:\n  KUBECONFIG=%s ip netns exec %s-a %s get weir\n",
			s.Site(siteA).Kubeconfig(), s.Stage.Prefix(), filepath.Join(s.Bin(), "kubectl"))
	})
	return nil
}

// until asks until it has an answer.
func until(ctx context.Context, what string, ask func() (string, bool, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 150*time.Second)
	defer cancel()
	for {
		got, ok, err := ask()
		if ok && err == nil {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: never; last: %s: %w", what, got, errors.Join(err, ctx.Err()))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// shows waits until an object shows something, by a template of `kubectl get -o jsonpath`.
func (s *show) shows(ctx context.Context, site, object, path, want string) error {
	_, err := until(ctx, fmt.Sprintf("%s at %s shows %s", object, site, want), func() (string, bool, error) {
		got, err := s.Kubectl(ctx, site, "get", object, "-o", "jsonpath={"+path+"}")
		return got, got == want, err
	})
	return err
}

const offers = `apiVersion: storage.weir.dev/v1alpha1
kind: StorageOffer
metadata: {name: disks}
spec: {amount: 6Gi, automatic: 1Gi, media: HDD, price: free until 2028, notice: 2m, grace: 1m}
---
apiVersion: storage.weir.dev/v1alpha1
kind: StorageOffer
metadata: {name: copies}
spec: {kind: Copy, amount: 8Gi, automatic: 4Gi, media: SSD, price: free, notice: 2m, grace: 1m}
`

const attic = `apiVersion: storage.weir.dev/v1alpha1
kind: StorageOffer
metadata: {name: attic}
spec: {amount: 4Gi, automatic: 2Gi, price: free, notice: 24h, grace: 24h}
---
apiVersion: storage.weir.dev/v1alpha1
kind: StorageOffer
metadata: {name: vault}
spec: {kind: Copy, amount: 8Gi, automatic: 4Gi, price: free, notice: 24h, grace: 24h}
`

// offer has A and C offer room for objects and for copies, which B finds.
func (s *show) offer(ctx context.Context) error {
	s.Title("A offers 6 GiB for objects, of which it gives 1 GiB by itself, and 8 GiB for copies; C offers some too")
	if err := s.Apply(ctx, siteA, offers); err != nil {
		return err
	}
	if err := s.Site(siteC).Apply(ctx, attic); err != nil {
		return err
	}
	for _, name := range []string{"a.disks", "a.copies", "c.attic", "c.vault"} {
		if err := s.shows(ctx, siteB2, "storageoffers", ".items[?(@.metadata.name==\""+name+"\")].metadata.name", name); err != nil {
			return err
		}
	}
	return s.Table(ctx, siteB2, "storageoffers")
}

func ask(name, offer, amount, purpose string) string {
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: StorageRequest
metadata: {name: %s}
spec: {offer: %s, amount: %s, until: %q, purpose: %s}
`, name, offer, amount, time.Now().Add(30*24*time.Hour).UTC().Format(time.RFC3339), purpose)
}

// id is the agreement that a request asks for: the request's UID.
func (s *show) id(ctx context.Context, site, name string) (string, error) {
	return s.Kubectl(ctx, site, "get", "storagerequest/"+name, "-o", "jsonpath={.metadata.uid}")
}

// agree has B ask A for more than A gives by itself, and C for less. Room for copies A gives B by
// itself.
func (s *show) agree(ctx context.Context) (err error) {
	s.Title("B asks A for 4 GiB for objects, which a person of A has to accept; for copies, and for 1 GiB of C, A does it by itself")
	if err := s.Apply(ctx, siteB2, ask("climate", "a.disks", "4Gi", "climate runs")); err != nil {
		return err
	}
	if err := s.shows(ctx, siteC, "storageoffers", `.items[?(@.metadata.name=="a.disks")].metadata.name`, "a.disks"); err != nil {
		return err
	}
	if err := s.Apply(ctx, siteB2, ask("copies", "a.copies", "4Gi", "climate runs")); err != nil {
		return err
	}
	if err := s.Apply(ctx, siteC, ask("scratch", "a.disks", "1Gi", "a test")); err != nil {
		return err
	}
	if s.first, err = s.id(ctx, siteB2, "climate"); err != nil {
		return err
	}
	if s.copies, err = s.id(ctx, siteB2, "copies"); err != nil {
		return err
	}
	if err := s.shows(ctx, siteA, "storageagreements", `.items[?(@.metadata.name=="`+s.first+`")].status.move`, "Host"); err != nil {
		return err
	}
	if err := s.Table(ctx, siteA, "storageagreements"); err != nil {
		return err
	}
	patch := `{"spec":{"decision":"Accept"}}`
	fmt.Printf("  kubectl patch storageagreement %s --type merge -p '%s'\n", s.first, patch)
	if _, err := s.Kubectl(ctx, siteA, "patch", "storageagreement/"+s.first, "--type=merge", "-p", patch); err != nil {
		return err
	}
	second, err := s.id(ctx, siteC, "scratch")
	if err != nil {
		return err
	}
	for _, at := range [][2]string{{siteB2, s.first}, {siteB2, s.copies}, {siteA, s.first}, {siteA, s.copies}, {siteA, second}} {
		if err := s.shows(ctx, at[0], "storageagreements", `.items[?(@.metadata.name=="`+at[1]+`")].status.phase`, "Active"); err != nil {
			return err
		}
	}
	s.Fact("A lends B 4 GiB for objects, which a person accepted, 4 GiB for copies, and C 1 GiB, which its offers accepted by themselves")
	return s.Table(ctx, siteA, "storageagreements")
}

const volume = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: runs, namespace: default}
spec:
  size: 2Gi
  replication: {copies: 3, otherOrganizations: Blind, stores: 1}
  durability: {acknowledge: Sites, sites: 2, maxLag: {time: 5s}}
  home: {preferredSites: [b1]}
  grants: [{site: b1, namespace: default}]
`

const imported = `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: runs, namespace: default}
spec: {import: {volume: default.runs}}
`

// tree is the part of the source tree that is copied; sums hashes its files' names and contents.
const (
	tree = "encoding math net"
	sums = "find " + tree + " -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"
)

// use has B use what A lends: a blind copy, and the store.
func (s *show) use(ctx context.Context) error {
	s.Title("B declares a volume with three copies and one in a lent store: b1, b2, a blind copy at A, and A's store")
	if err := s.Apply(ctx, siteB2, volume); err != nil {
		return err
	}
	if err := s.Wait(ctx, siteB2, "gv/runs", "condition=Ready"); err != nil {
		return err
	}
	if err := s.Site(siteB1).Apply(ctx, imported); err != nil {
		return err
	}
	for _, site := range []string{siteB1, siteB2} {
		if err := s.Site(site).Apply(ctx, s.Pod("at-"+site, map[string]string{"/data": "runs"})); err != nil {
			return err
		}
	}
	for _, site := range []string{siteB1, siteB2} {
		if err := s.Wait(ctx, site, "pod/at-"+site, "condition=Ready"); err != nil {
			return err
		}
	}
	began := time.Now()
	count, err := s.Exec(ctx, siteB1, "at-b1", "set -e; cd /source; for d in "+tree+"; do echo $d; done"+
		" | xargs -P 4 -I {} cp -R {} /data; "+
		"dd if=/dev/urandom of=/data/random bs=1M count=8 2>/dev/null; sync; cd /data; find . -type f | wc -l")
	if err != nil {
		return err
	}
	s.Fact("a pod at b1 copied %s files into the volume in %.0f s", count, time.Since(began).Seconds())
	if err := s.whole(ctx, s.first); err != nil {
		return err
	}
	if err := s.Table(ctx, siteB2, "gv,gvc"); err != nil {
		return err
	}
	return s.hidden(ctx)
}

// whole waits until the volume has its copies, and everything is in the store of an agreement.
func (s *show) whole(ctx context.Context, agreement string) error {
	if err := s.shows(ctx, siteB2, "gvc", `.items[0].status.stores[?(@.agreement=="`+agreement+`")].state`, "Whole"); err != nil {
		return err
	}
	out, err := s.Kubectl(ctx, siteB2, "get", "gvc", "-o",
		`jsonpath={range .items[0].status.stores[*]}agreement {.agreement}, at {.site}: {.state}{"\n"}{end}`)
	fmt.Print(playbill.Indent(out))
	return err
}

// hidden shows that A sees nothing of what it stores.
func (s *show) hidden(ctx context.Context) error {
	files, err := s.Lent(siteA)
	if err != nil {
		return err
	}
	var size int64
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if size += int64(len(b)); len(b) > 64<<10 {
			s.sample = b[32<<10 : 32<<10+64]
		}
	}
	if s.sample == nil {
		return fmt.Errorf("nothing of B is in A's store: %d files", len(files))
	}
	text, err := s.Exec(ctx, siteB1, "at-b1", "head -c 32 /data/random | od -An -v -tx1 | tr -d ' \\n'")
	if err != nil {
		return err
	}
	plain, err := hex.DecodeString(text)
	if err != nil || len(plain) != 32 {
		return fmt.Errorf("the file begins with %q: %w", text, err)
	}
	for _, x := range []struct {
		what []byte
		want bool
	}{{s.sample, true}, {plain, false}} { // what is there sealed is found
		if found, err := s.OnDisk(siteA, x.what); err != nil || found != x.want {
			return fmt.Errorf("bytes %x are on A's disks: %v, want %v: %w", x.what[:8], found, x.want, err)
		}
	}
	s.Fact("A holds %d objects of B with %d MiB, and a blind copy; what B wrote is nowhere on its disks but sealed", len(files), size>>20)
	return nil
}

// lose takes site b1 away, while b2 lacks what b1 acknowledged last.
func (s *show) lose(ctx context.Context) error {
	s.Title("A pod at b1 writes and fsyncs, while b2 is cut off: only b1 and A have what is acknowledged. Then b1 is lost")
	if err := s.Write(ctx, siteB1, "at-b1", "/data/lines", "20ms"); err != nil {
		return err
	}
	before, err := s.Lines(ctx, siteB1, "at-b1", 50)
	if err != nil {
		return err
	}
	if err := s.Stage.Cut(ctx, siteB2); err != nil {
		return err
	}
	alone, err := s.Lines(ctx, siteB1, "at-b1", before+100)
	if err != nil {
		return err
	}
	noted, err := s.Exec(ctx, siteB1, "at-b1", "cat /tmp/record")
	if err != nil {
		return err
	}
	s.Lose(siteB1)
	lost := time.Now()
	if err := s.Stage.Heal(ctx, siteB2); err != nil {
		return err
	}
	check := "cat > /tmp/before <<'END'\n" + noted + "\nEND\nguesttool verify /data/lines /tmp/before"
	if _, err := s.Exec(ctx, siteB2, "at-b2", check); err != nil {
		return err
	}
	s.Fact("b1 is lost with its cluster; %.1f s later the pod at b2 has all %d lines that were acknowledged, %d of them from A",
		time.Since(lost).Seconds(), strings.Count(noted, "\n")+1, alone-before)
	want, err := s.Exec(ctx, siteB2, "at-b2", "cd /source && "+sums)
	if err != nil {
		return err
	}
	if got, err := s.Exec(ctx, siteB2, "at-b2", "cd /data && "+sums); err != nil || got != want {
		return fmt.Errorf("the files' hash at b2 is %s, and the original's %s: %w", got, want, err)
	}
	return s.Write(ctx, siteB2, "at-b2", "/data/more", "20ms")
}

// comeBack starts site b1 again.
func (s *show) comeBack(ctx context.Context) error {
	s.Title("b1 comes back")
	if err := s.Return(ctx, siteB1); err != nil {
		return err
	}
	if err := s.Wait(ctx, siteB2, "gv/runs", "jsonpath={.status.copies}=4/4"); err != nil {
		return err
	}
	return s.Table(ctx, siteB2, "gv,gvc")
}

// account shows what both sides counted.
func (s *show) account(ctx context.Context) error {
	s.Title("What both sides counted, each with its own signature")
	for _, id := range []string{s.first, s.copies} {
		if err := s.counted(ctx, id); err != nil {
			return err
		}
	}
	return s.Table(ctx, siteA, "storageusages")
}

// counted shows what both sides counted of an agreement.
func (s *show) counted(ctx context.Context, id string) error {
	line := `jsonpath={.status.byGuest.stored} {.status.byHost.stored} {.status.byGuest.at} {.status.byHost.at} ` +
		`{.status.conditions[?(@.type=="CountsAgree")].status}`
	for _, site := range []string{siteA, siteB2} {
		out, err := until(ctx, "both count at "+site, func() (string, bool, error) {
			out, err := s.Kubectl(ctx, site, "get", "storageusage/"+id, "-o", line)
			var guest, host int64
			n, _ := fmt.Sscan(out, &guest, &host)
			return out, n == 2 && guest > 0 && host > 0 && strings.HasSuffix(out, " True"), err
		})
		if err != nil {
			return err
		}
		f := strings.Fields(out)
		s.Fact("at %s: the guest counted %s bytes stored up to %s, the host %s up to %s; their counts agree: %s", site, f[0], f[2], f[1],
			f[3], f[4])
	}
	return nil
}

// end has A give notice while a pod of B writes.
func (s *show) end(ctx context.Context) error {
	s.Title("A gives notice of both, while a pod of B writes; B asks C for room, and what is at A goes there")
	patch := `{"spec":{"notice":{"why":"the disks are old"}}}`
	for _, id := range []string{s.first, s.copies} {
		fmt.Printf("  kubectl patch storageagreement %s --type merge -p '%s'\n", id, patch)
		if _, err := s.Kubectl(ctx, siteA, "patch", "storageagreement/"+id, "--type=merge", "-p", patch); err != nil {
			return err
		}
	}
	if err := s.Apply(ctx, siteB2, ask("instead", "c.attic", "2Gi", "climate runs")+"---\n"+
		ask("elsewhere", "c.vault", "4Gi", "climate runs")); err != nil {
		return err
	}
	next, err := s.id(ctx, siteB2, "instead")
	if err != nil {
		return err
	}
	if err := s.whole(ctx, next); err != nil {
		return err
	}
	if _, err := until(ctx, "A's store is empty", func() (string, bool, error) {
		files, err := s.Lent(siteA)
		return fmt.Sprint(len(files)), len(files) == 0, err
	}); err != nil {
		return err
	}
	for _, site := range []string{siteA, siteB2} {
		for _, id := range []string{s.first, s.copies} {
			if err := s.shows(ctx, site, "storageagreement/"+id, ".status.phase", "Ended"); err != nil {
				return err
			}
		}
	}
	if err := s.Wait(ctx, siteB2, "gv/runs", "jsonpath={.status.copies}=4/4"); err != nil {
		return err
	}
	noted, err := s.Lines(ctx, siteB2, "at-b2", 50)
	if err != nil {
		return err
	}
	if err := s.EndWriting(ctx, siteB2, "at-b2", "/data/more"); err != nil {
		return err
	}
	s.Fact("the agreements ended while the pod at b2 wrote: no error, %d noted lines, all there", noted)
	for _, id := range []string{s.first, s.copies} {
		receipt, err := s.Kubectl(ctx, siteB2, "get", "storageagreement/"+id, "-o",
			`jsonpath={range .status.said[*]}{.at} {.side}: {.what} ({.by}) {.why}{"\n"}{end}`)
		if err != nil {
			return err
		}
		fmt.Printf("  the receipt, as both hold it:\n%s", playbill.Indent(receipt))
	}
	files, err := s.Lent(siteA)
	if err != nil || len(files) > 0 {
		return fmt.Errorf("there are still %d objects of others in the store of A: %w", len(files), err)
	}
	if found, err := s.OnDisk(siteA, s.sample); err != nil || found {
		return fmt.Errorf("what B stored is on A's disks: %v: %w", found, err)
	}
	s.Fact("nothing of B is on A's disks any more; C has a store and a blind copy instead")
	return nil
}
