// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"time"
)

// line is line n of a written file. It has its own checksum.
func line(n int) string {
	body := fmt.Sprintf("line %09d of what must not be lost", n)
	return fmt.Sprintf("%s %08x\n", body, crc32.ChecksumIEEE([]byte(body)))
}

// write appends and fsyncs lines. After each fsync it adds a line "N UNIXNANO MICROSECONDS" to the
// record: number, time, and duration. PACE in the environment is a pause before each line, for
// writers that must leave their machine to others.
func write(file, record, stop string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
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
		begin := time.Now()
		if _, err := f.WriteString(line(n)); err != nil {
			return fmt.Errorf("write line %d: %w", n, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("fsync line %d: %w", n, err)
		}
		took := time.Since(begin)
		longest = max(longest, took)
		if _, err := fmt.Fprintf(r, "%d %d %d\n", n, time.Now().UnixNano(), took.Microseconds()); err != nil {
			return fmt.Errorf("note line %d: %w", n, err)
		}
	}
	fmt.Printf("%d lines, longest stall %d ms\n", n, longest.Milliseconds())
	return f.Close()
}

// verify reads the file anew and compares it with the record.
func verify(file, record string) error {
	noted, err := os.ReadFile(record)
	if err != nil {
		return err
	}
	last := -1
	for l := range strings.Lines(string(noted)) {
		fields := strings.Fields(l)
		if len(fields) != 3 || !strings.HasSuffix(l, "\n") {
			continue // the line that a power cut tore
		}
		if last, err = strconv.Atoi(fields[0]); err != nil {
			return fmt.Errorf("record %s: %w", record, err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	have := 0
	for s.Scan() {
		if want := strings.TrimSuffix(line(have), "\n"); s.Text() != want {
			if have > last {
				break // what was not noted may be missing
			}
			return fmt.Errorf("%s: line %d is %q, want %q", file, have, s.Text(), want)
		}
		have++
	}
	if have <= last {
		return fmt.Errorf("%s: %d lines of %d that were fsynced are there", file, have, last+1)
	}
	fmt.Printf("%d noted lines, all there\n", last+1)
	return nil
}

// unstable writes without fsync, waits for the signal, and then fsyncs. The client must send again
// what a server lost meanwhile.
func unstable(file, signal string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	// This makes the kernel send the data, without a COMMIT.
	if err := flushAsync(f, int64(len(data))); err != nil {
		return err
	}
	fmt.Println("written")
	for !exists(signal) {
		time.Sleep(20 * time.Millisecond)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := dropCache(file); err != nil {
		return err
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%s: what was written and fsynced is not what is read", file)
	}
	fmt.Println("all there")
	return nil
}
