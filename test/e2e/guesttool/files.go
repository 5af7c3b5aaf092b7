// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// fileSize is the size of a file that files makes, in bytes.
const fileSize = 100_000

// pace returns the pause that PACE in the environment asks for.
func pace() (time.Duration, error) {
	text := os.Getenv("PACE")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("PACE: %w", err)
	}
	return d, nil
}

// content is the content of file n.
func content(n int) ([]byte, error) {
	p := make([]byte, fileSize)
	_, err := io.ReadFull(stream(fmt.Sprint("file ", n)), p)
	return p, err
}

// files makes files in dir, each under another name first, and fsyncs them. After each it adds a
// line to the record, as write does.
func files(dir, record, stop string) error {
	r, err := os.OpenFile(record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	pause, err := pace()
	if err != nil {
		return err
	}
	var longest time.Duration
	n := 0
	for ; !exists(stop); n++ {
		time.Sleep(pause)
		p, err := content(n)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := makeFile(dir, n, p); err != nil {
			return fmt.Errorf("file %d: %w", n, err)
		}
		took := time.Since(begin)
		longest = max(longest, took)
		if _, err := fmt.Fprintf(r, "%d %d %d\n", n, time.Now().UnixNano(), took.Microseconds()); err != nil {
			return fmt.Errorf("note file %d: %w", n, err)
		}
	}
	fmt.Printf("%d files, longest stall %d ms\n", n, longest.Milliseconds())
	return nil
}

func makeFile(dir string, n int, p []byte) error {
	temp := filepath.Join(dir, fmt.Sprint("new", n))
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(p); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, strconv.Itoa(n)))
}

// checkFiles checks that all files are there, whole, that the record names.
func checkFiles(dir, record string) error {
	noted, err := os.ReadFile(record)
	if err != nil {
		return err
	}
	count := 0
	for l := range strings.Lines(string(noted)) {
		fields := strings.Fields(l)
		if len(fields) != 3 || !strings.HasSuffix(l, "\n") {
			continue // the line that a power cut tore
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			return fmt.Errorf("record %s: %w", record, err)
		}
		want, err := content(n)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s: file %d is not what was written", dir, n)
		}
		count++
	}
	fmt.Printf("%d noted files, all there\n", count)
	return nil
}
