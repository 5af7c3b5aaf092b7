// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// users: who users of the clients of another organization's site are to a volume, as kernels show
// it there and at the owner's own site. A pod with an admitted address that calls itself root, or
// by another's number, is nobody.
func (s *scene) users(t *testing.T) {
	if err := s.Bed.Create(s.Ctx, "a", bed.Manifest("u", 1, "a")); err != nil {
		t.Fatal(err)
	}
	at := map[string]*stage.Guest{}
	for _, site := range []string{"a", "b"} {
		g, err := s.Bed.Site(site).Guest(s.Ctx, "u"+site)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Kill()
		if _, err := s.Bed.Site(site).Mount(s.Ctx, g, "u"); err != nil {
			t.Fatal(err)
		}
		// What kernels remember of owners and modes is not what this looks at.
		_, err = g.Output(s.Ctx, "umount /mnt/u")
		if err == nil {
			err = g.Mount(s.Ctx, s.Bed.Site(site).Addr(), "/u", "/mnt/u", stage.DefaultMountOptions+",actimeo=0,lookupcache=none")
		}
		if err != nil {
			t.Fatal(err)
		}
		at[site] = g
	}
	run := func(site, format string, a ...any) string {
		t.Helper()
		r, err := at[site].Run(s.Ctx, "cd /mnt/u && "+fmt.Sprintf(format, a...))
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != 0 {
			return "refused: " + r.Stderr
		}
		return strings.TrimSpace(r.Stdout)
	}
	as := func(user, script string) string {
		uid, gid, _ := strings.Cut(user, ":")
		return run("b", "setpriv --reuid %s --regid %s --clear-groups sh -c 'umask 022; %s'", uid, gid, script)
	}
	const stat = "stat -c '%%u:%%g %%a' %s"
	made := 0
	for i, x := range []struct {
		says               []string
		user, atB, atA     string // of a file that the user makes
		enters             bool   // a directory of user 5000 and group 600 of mode 750
		mine               string // that directory, as b shows it
		chgrp, chown, then string // a group and a user to whom it gives the file, and what a shows then
	}{
		{nil, "0:0", "0:0 644", "0:0 644", true, "5000:600 750", "7", "8", "8:7 644"},
		{nil, "1000:100", "1000:100 644", "1000:100 644", false, "5000:600 750", "7", "8", "1000:100 644"},
		{[]string{"--squash", "Root"}, "0:0", "65534:65534 644", "65534:65534 644", false, "5000:600 750", "0", "0", "65534:65534 644"},
		{[]string{"--squash", "Root"}, "5000:100", "5000:100 644", "5000:100 644", true, "5000:600 750", "100", "0", "5000:100 644"},
		{[]string{"--squash", "All", "--anonymous-uid", "5000"}, "42:42", "5000:65534 644", "5000:65534 644", true,
			"5000:600 750", "42", "42", "5000:65534 644"},
		{ranges, "1000:100", "1000:100 644", "5000:600 644", true, "1000:100 750", "100", "1001", "5000:600 644"},
		{ranges, "0:0", "65534:65534 644", "65534:65534 644", false, "1000:100 750", "0", "0", "65534:65534 644"},
		{ranges, "5000:600", "65534:65534 644", "65534:65534 644", false, "1000:100 750", "100", "1000", "65534:65534 644"},
		{[]string{"--mask", "070"}, "42:600", "42:600 604", "42:600 604", false, "5000:600 700", "600", "0", "42:600 604"},
	} {
		if out, err := s.Bed.Weir(s.Ctx, "a", append([]string{"volume", "clients", "u", "--site", "b"}, x.says...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		what := fmt.Sprintf("%v, user %s", x.says, x.user)
		open, mine := fmt.Sprint("open", i), fmt.Sprint("mine", i)
		if r := run("a", "mkdir -m 777 %[1]s && mkdir -m 750 %[2]s && echo secret >%[2]s/s && chmod 640 %[2]s/s && chown -R 5000:600 %[2]s",
			open, mine); r != "" {
			t.Fatal(r)
		}
		// b's gateway, and the home, hear of it a little later.
		until := time.Now().Add(30 * time.Second)
		for {
			made++
			name := fmt.Sprintf("%s/f%d", open, made)
			as(x.user, "touch "+name)
			atB, atA := run("b", stat, name), run("a", stat, name)
			if atB == x.atB && atA == x.atA {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s makes a file that is %s at b and %s at a, want %s and %s", what, atB, atA, x.atB, x.atA)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got := as(x.user, "cat "+mine+"/s"); (got == "secret") != x.enters || !x.enters && !strings.Contains(got, "Permission denied") {
			t.Errorf("%s reads what is in %s: %s", what, mine, got)
		}
		if got := run("b", stat, mine); got != x.mine {
			t.Errorf("%s: b shows %s as %s, want %s", what, mine, got, x.mine)
		}
		name := fmt.Sprintf("%s/f%d", open, made)
		as(x.user, fmt.Sprintf("chgrp %s %s", x.chgrp, name))
		as(x.user, fmt.Sprintf("chown %s %s", x.chown, name))
		if got := run("a", stat, name); got != x.then {
			t.Errorf("%s gives its file to group %s and user %s, and it is %s at a, want %s", what, x.chgrp, x.chown, got, x.then)
		}
	}
	out, err := s.Bed.Weir(s.Ctx, "a", "audit")
	if err != nil {
		t.Error(err)
	}
	wants(t, out, "volume u: root of the clients at site b (org-b) is root of the volume", "volume u: 1 clients at site b are known by")
	// The owner's own users are who they are all the time.
	if got := run("a", "touch own && "+stat, "own"); got != "0:0 644" {
		t.Errorf("at a root makes a file that is %s", got)
	}
	if _, err := s.Bed.Weir(s.Ctx, "b", "volume", "clients", "u", "--site", "b"); err == nil {
		t.Error(errors.New("a person of another organization says who its users are"))
	} else {
		wants(t, err.Error(), "it belongs to organization")
	}
}

var ranges = []string{"--uids", "1000:5000:10", "--gids", "100:600"}
