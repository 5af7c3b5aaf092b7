// SPDX-License-Identifier: Apache-2.0

// Command guesttool is what the end-to-end tests run inside guests, on a mounted volume. It is one
// static program, because starting processes is slow in a guest.
//
//	guesttool write FILE RECORD STOP   append lines, fsync and record each, until STOP exists
//	guesttool verify FILE RECORD       check that FILE has every recorded line, whole and in order
//	guesttool files DIR RECORD STOP    make files, fsync and record each, until STOP exists
//	guesttool checkfiles DIR RECORD    check that DIR has every recorded file, whole
//	guesttool names DIR RECORD STOP    make, rename, link and remove names in DIR until an error
//	guesttool lock FILE RECORD STOP    hold a lock on FILE, and check it every second
//	guesttool unstable FILE SIGNAL     write without fsync, wait for SIGNAL, fsync, read it back
//	guesttool fill FILE MIB SEED       write so many MiB that do not compress, and fsync
//	guesttool check FILE MIB SEED      read what fill wrote, from the server
//	guesttool killer PART WORDS ARMED  make ARMED; kill the process WORDS when an NFS mount comes or
//	                                   goes at a path with PART
//	guesttool excl DIR RECORD STOP     create names with O_EXCL; each must be new
//	guesttool tlshd CA CERT KEY READY  make handshakes of TLS for the kernel, READY once it listens
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guesttool:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	commands := map[string]struct {
		args int
		run  func(a []string) error
	}{
		"write":      {3, func(a []string) error { return write(a[0], a[1], a[2]) }},
		"verify":     {2, func(a []string) error { return verify(a[0], a[1]) }},
		"files":      {3, func(a []string) error { return files(a[0], a[1], a[2]) }},
		"checkfiles": {2, func(a []string) error { return checkFiles(a[0], a[1]) }},
		"names":      {3, func(a []string) error { return names(a[0], a[1], a[2]) }},
		"lock":       {3, func(a []string) error { return lock(a[0], a[1], a[2]) }},
		"unstable":   {2, func(a []string) error { return unstable(a[0], a[1]) }},
		"fill":       {3, func(a []string) error { return fill(a[0], a[1], a[2]) }},
		"check":      {3, func(a []string) error { return check(a[0], a[1], a[2]) }},
		"killer":     {3, func(a []string) error { return killer(a[0], a[1], a[2]) }},
		"excl":       {3, func(a []string) error { return excl(a[0], a[1], a[2]) }},
		"tlshd":      {4, func(a []string) error { return tlshd(a[0], a[1], a[2], a[3]) }},
	}
	if len(args) == 0 {
		return fmt.Errorf("no command: see the package comment")
	}
	c, ok := commands[args[0]]
	if !ok || len(args) != c.args+1 {
		return fmt.Errorf("command %q with %d arguments: see the package comment", args[0], len(args)-1)
	}
	return c.run(args[1:])
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
