// SPDX-License-Identifier: Apache-2.0

// Command mkimage writes a container image from files of this machine, as an OCI archive.
//
//	mkimage [-user UID:GID] NAME:TAG OUT.tar PATH=FILE...
//
// The first file is the entrypoint; there is an empty /tmp. For instance, with a weir program that was built without cgo:
//
//	mkimage example.test/weir:1 weir.tar /weir=bin/weir && ctr -n k8s.io images import weir.tar
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/weir-storage/weir/test/e2e/image"
)

func main() {
	user := flag.String("user", "", "user and group of the process, as numbers; default root")
	flag.Parse()
	if err := run(*user, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(user string, args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("%d arguments: say NAME:TAG OUT.tar PATH=FILE, and more files if there are", len(args))
	}
	i := image.Image{Name: args[0], Files: map[string]string{}, Folders: []string{"/tmp"}, User: user}
	for _, a := range args[2:] {
		in, file, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("argument %q has no =: say PATH-IN-THE-IMAGE=FILE", a)
		}
		if i.Entrypoint == nil {
			i.Entrypoint = []string{in}
		}
		i.Files[in] = file
	}
	return i.WriteFile(args[1])
}
