// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Kinds of router, see Config.Router.
const (
	RouterAuto = ""     // RouterHost where the host's kernel has netem, else RouterUML
	RouterHost = "host" // a namespace of the host; without netem SetLink fails, all else works
	RouterUML  = "uml"  // a User-Mode-Linux machine, which brings netem
)

// router forwards between the sites. It is configured by bash scripts, because both kinds can run
// them.
type router interface {
	run(ctx context.Context, script string) error
	dev(site int) string // name of the router's interface to a site
}

// startRouter makes the router of a stage whose namespaces and veths exist. m is the machine that
// it boots if the host cannot do it; it has no interfaces yet.
func startRouter(ctx context.Context, kind string, m *machine, sites int) (router, error) {
	if kind == RouterAuto {
		kind = RouterUML
		if _, err := run(ctx, "", "tc", "-n", m.ns, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"); err == nil {
			kind = RouterHost
		}
	}
	switch kind {
	case RouterHost:
		r := hostRouter{ns: m.ns}
		return r, r.run(ctx, routerSetup(r, sites))
	case RouterUML:
		return startUMLRouter(ctx, m, sites)
	default:
		return nil, fmt.Errorf("start router: no such kind %q: leave Config.Router empty", kind)
	}
}

// routerSetup is the script that makes a router of a machine whose interfaces exist. All neighbours
// are entered statically, so that a cut link is silent: no host sends ARP requests, so none reports
// that an address is unreachable.
func routerSetup(r router, sites int) string {
	var b strings.Builder
	b.WriteString("echo 1 >/proc/sys/net/ipv4/ip_forward && ip -batch - <<'END'\n")
	for i := 1; i <= sites; i++ {
		fmt.Fprintf(&b, "link set %[1]s address %[2]s\nlink set %[1]s up\naddr add %[3]s/24 dev %[1]s\n",
			r.dev(i), siteMAC(i, routerHost), siteAddr(i, routerHost))
		for host := firstHost; host <= lastGuest; host++ {
			fmt.Fprintf(&b, "neigh replace %s lladdr %s dev %s nud permanent\n", siteAddr(i, host), siteMAC(i, host), r.dev(i))
		}
	}
	b.WriteString("END\n")
	return b.String()
}

// hostRouter is a network namespace of the host.
type hostRouter struct{ ns string }

func (r hostRouter) dev(site int) string { return routerPort(site) }

func (r hostRouter) run(ctx context.Context, script string) error {
	_, err := run(ctx, script, "nsenter", "--net="+nsPath(r.ns), "--", "bash")
	return err
}

// routerPort is the host's interface at the router's end of a site's link.
func routerPort(site int) string { return fmt.Sprintf("r%d", site) }

// umlRouter is a machine that holds raw sockets on the ends of the sites' links.
type umlRouter struct{ *machine }

func (r umlRouter) dev(site int) string { return fmt.Sprintf("vec%d", site-1) }

func (r umlRouter) run(ctx context.Context, script string) error {
	id, err := r.startScript(script)
	if err != nil {
		return err
	}
	res, err := r.finish(ctx, id)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("run in router: code %d: %s", res.Code, strings.TrimSpace(res.Stderr))
	}
	return err
}

func startUMLRouter(ctx context.Context, m *machine, sites int) (router, error) {
	if _, err := os.Stat(m.kernel.path); err != nil {
		return nil, fmt.Errorf("start router: %w: run hack/install-deps", err)
	}
	r := umlRouter{m}
	var ports []string
	for i := 1; i <= sites; i++ {
		r.nics = append(r.nics, nic{host: routerPort(i), mac: siteMAC(i, routerHost)})
		ports = append(ports, "link set "+routerPort(i)+" arp off up") // the machine speaks here, not the host's stack
	}
	if err := ipBatch(ctx, m.ns, ports...); err != nil {
		return nil, fmt.Errorf("start router: %w", err)
	}
	r.boot = "modprobe sch_netem\n" + routerSetup(r, sites)
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	if out, err := os.ReadFile(filepath.Join(m.dir, "control", "boot.out")); err != nil || len(out) > 0 {
		return nil, errors.Join(fmt.Errorf("start router: its setup said %q", out), err)
	}
	return r, nil
}
