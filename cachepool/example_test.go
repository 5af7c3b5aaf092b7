// SPDX-License-Identifier: Apache-2.0

package cachepool_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
)

// A file survives a loss of power when both it and its name were synced.
func Example() {
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "ams-1", Limit: 1 << 20, Rand: rand.New(rand.NewPCG(1, 2))})
	write := func(d cachepool.Dir, name string) error {
		f, err := d.Create(name)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte("a record"), 0); err != nil {
			return err
		}
		return f.Sync()
	}
	open := func() (cachepool.Pool, cachepool.Dir) {
		p, err := disk.Open()
		if err != nil {
			panic(err)
		}
		d, err := p.Volume("v")
		if err != nil {
			panic(err)
		}
		return p, d
	}
	_, d := open()
	fmt.Println("write and sync the first file:", write(d, "first"))
	fmt.Println("sync the directory, and with it the name:", d.Sync())
	disk.Crash()

	p, d := open()
	_, err := d.Open("first")
	fmt.Println("the first file after the crash:", err)
	_, err = d.Open("second")
	fmt.Println("there is no second file:", errors.Is(err, fs.ErrNotExist))
	fmt.Println("times that the pool was opened:", p.Boot())
	// Output:
	// write and sync the first file: <nil>
	// sync the directory, and with it the name: <nil>
	// the first file after the crash: <nil>
	// there is no second file: true
	// times that the pool was opened: 2
}
