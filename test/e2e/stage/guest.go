// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// DefaultMountOptions are the options of Guest.Mount when its caller passes none: what a careful
// node would use, but the client suspects a connection after 10 s of silence, not after 60 s.
const DefaultMountOptions = "vers=4.2,proto=tcp,hard,noresvport,timeo=100,retrans=2"

// Guest is a machine at a site with a kernel, an address and a kernel NFS client of its own. It
// sees all files of the host and writes to none: what it writes goes to its memory, except below
// /x. A guest may still see the old contents of a host file that changed after the guest read it,
// so put new contents into a file with a new name. Its methods may be called from several
// goroutines.
type Guest struct {
	machine
	site *Site
	name string
	host int    // number of its address
	port string // interface on the site's side

	identity sync.Once
}

var guestName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

// Guest boots a guest at the site and returns when it takes commands, in about three seconds. mem
// is its memory in MiB (0: 256); one virtual CPU. A guest that was killed may be booted again under
// its name; its /x is as it was.
func (s *Site) Guest(ctx context.Context, name string, mem int) (*Guest, error) {
	if !guestName.MatchString(name) {
		return nil, fmt.Errorf("boot guest %q at site %s: a guest's name must match %s", name, s.name, guestName)
	}
	if mem == 0 {
		mem = 256
	}
	g := &Guest{site: s, name: name}
	s.mu.Lock()
	for _, other := range s.guests {
		if other.name == name {
			s.mu.Unlock()
			return nil, fmt.Errorf("boot guest %s at site %s: it runs already: take another name or end it", name, s.name)
		}
	}
	g.host = firstGuest
	for s.guests[g.host] != nil {
		g.host++
	}
	if g.host > lastGuest {
		s.mu.Unlock()
		return nil, fmt.Errorf("boot guest %s at site %s: %d guests run there: end one", name, s.name, len(s.guests))
	}
	s.guests[g.host] = g
	s.mu.Unlock()

	g.port = fmt.Sprintf("g%d", g.host)
	raw := fmt.Sprintf("u%d", g.host)
	g.machine = machine{
		name: s.ns + "-" + name, ns: s.ns, dir: filepath.Join(s.Dir(), "guest-"+name), mem: mem, run: s.stage.run, kernel: s.stage.kernel,
		nics: []nic{{host: raw, mac: siteMAC(s.index, g.host)}},
		boot: fmt.Sprintf(`ip link set vec0 up
ip addr add %s/24 dev vec0
ip neigh replace %s lladdr %s dev vec0 nud permanent
ip route add default via %[2]s
modprobe nfsv4
`, g.Addr(), siteAddr(s.index, routerHost), siteMAC(s.index, routerHost)),
	}
	// The raw end belongs to the guest alone: the host's own stack must not answer there.
	err := ipBatch(ctx, s.ns,
		"link add "+g.port+" type veth peer name "+raw,
		"link set "+raw+" arp off up",
		"link set "+g.port+" master lan0 up")
	if err == nil {
		err = g.start(ctx)
	}
	if err != nil {
		g.release()
		return nil, fmt.Errorf("boot guest %s at site %s: %w", name, s.name, err)
	}
	return g, nil
}

// Name is the guest's host name.
func (g *Guest) Name() string { return g.machine.name }

// Addr is the guest's address, from which its requests come.
func (g *Guest) Addr() string { return siteAddr(g.site.index, g.host) }

// Shared is a host folder that the guest sees, and may write to, as /x. What the guest has synced
// there outlives it.
func (g *Guest) Shared() string { return g.shared() }

// Console is the path of the file with the kernel's messages.
func (g *Guest) Console() string { return g.proc.Log() }

// Run runs a bash script as root in the guest and waits for it. The error reports that the guest
// could not run it to its end; a script that fails is no error but a Code. When ctx ends, the
// script's process group is killed.
func (g *Guest) Run(ctx context.Context, script string) (Result, error) {
	id, err := g.startScript(script)
	if err != nil {
		return Result{}, err
	}
	return g.finish(ctx, id)
}

// Output is Run for scripts that must succeed: it returns what the script printed, and an error
// when its code is not 0.
func (g *Guest) Output(ctx context.Context, script string) (string, error) {
	res, err := g.Run(ctx, script)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("run in guest %s: %q ended with code %d: %s", g.Name(), script, res.Code, strings.TrimSpace(res.Stderr))
	}
	return res.Stdout, err
}

// GuestJob is a script that runs in a guest in the background.
type GuestJob struct {
	guest *Guest
	id    string
	stop  func() bool
}

// Start runs a bash script in the guest in the background; its process group is killed when ctx
// ends.
func (g *Guest) Start(ctx context.Context, script string) (*GuestJob, error) {
	id, err := g.startScript(script)
	if err != nil {
		return nil, err
	}
	j := &GuestJob{guest: g, id: id}
	j.stop = context.AfterFunc(ctx, func() { _ = j.Signal("KILL") })
	return j, nil
}

// Wait waits for the job's end, as Run does; the job is killed when ctx ends first. Call it once.
func (j *GuestJob) Wait(ctx context.Context) (Result, error) {
	defer j.stop()
	return j.guest.finish(ctx, j.id)
}

// Ended reports whether the job has ended by itself, and how.
func (j *GuestJob) Ended() (Result, bool) {
	code, err := strconv.Atoi(strings.TrimSpace(j.guest.read(j.id, "rc")))
	return Result{Stdout: j.guest.read(j.id, "out"), Stderr: j.guest.read(j.id, "err"), Code: code}, err == nil
}

// Stdout is what the job has printed until now.
func (j *GuestJob) Stdout() string { return j.guest.read(j.id, "out") }

// Signal sends a signal, such as "TERM", to the job's process group.
func (j *GuestJob) Signal(signal string) error {
	if err := j.guest.request("kill " + j.id + " " + signal); err != nil {
		return fmt.Errorf("signal job in guest %s: %w", j.guest.Name(), err)
	}
	return nil
}

// Mount mounts an export of an NFS server in the guest; dir is made. Options are those of nfs(5),
// DefaultMountOptions if empty. Before its first mount the guest gives its client a unique
// identity, as a well-kept node does.
func (g *Guest) Mount(ctx context.Context, server, export, dir, options string) error {
	if options == "" {
		options = DefaultMountOptions
	}
	identify := ""
	g.identity.Do(func() {
		identify = `id=/sys/fs/nfs/net/nfs_client/identifier; [ ! -e $id ] || cat /proc/sys/kernel/random/uuid >$id || exit; `
	})
	_, err := g.Output(ctx, fmt.Sprintf("%smkdir -p %s && mount -t nfs4 -o %s %s:%s %[2]s", identify, dir, options, server, export))
	return err
}

// Unmount unmounts dir in the guest.
func (g *Guest) Unmount(ctx context.Context, dir string) error {
	_, err := g.Output(ctx, "umount "+dir)
	return err
}

// Cut takes the guest off its site's network, silently: no connection is closed.
func (g *Guest) Cut(ctx context.Context) error {
	return ipBatch(ctx, g.site.ns, "link set "+g.port+" down")
}

// Heal undoes Cut.
func (g *Guest) Heal(ctx context.Context) error {
	return ipBatch(ctx, g.site.ns, "link set "+g.port+" up")
}

// Freeze stops the whole guest: its connections stay, and it says nothing.
func (g *Guest) Freeze() error { return g.proc.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (g *Guest) Thaw() error { return g.proc.Signal(syscall.SIGCONT) }

// Kill cuts the guest's power: nothing is flushed, unmounted or said.
func (g *Guest) Kill() {
	g.kill()
	g.release()
}

// Down unmounts and powers off. When ctx ends first the guest is killed, which is an error.
func (g *Guest) Down(ctx context.Context) error {
	err := g.off(ctx)
	g.release()
	return err
}

// release gives the address back.
func (g *Guest) release() {
	// It fails when the stage has gone already, with the interface.
	_ = ipBatch(context.Background(), g.site.ns, "link del "+g.port)
	g.site.mu.Lock()
	defer g.site.mu.Unlock()
	if g.site.guests[g.host] == g {
		delete(g.site.guests, g.host)
	}
}
