// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
)

// promiseName is a file in the pool's folder with the longest promise that may still last.
const promiseName = "longest-promise.json"

// promiseFile is the path of that file. This gateway's process alone writes it (protocol-4).
type promiseFile string

// keptPromise is what the file holds.
type keptPromise struct {
	Promise federation.Duration `json:"promise"`
}

// begin returns the longest promise that an earlier process may have given, and notes that this one
// gives promises of that length. It is durable when it returns.
func (f promiseFile) begin(now time.Duration) (former time.Duration, err error) {
	var k keptPromise
	text, err := os.ReadFile(string(f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, f.write(now)
	case err == nil:
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: file %s: wait for the longest promise that this gateway was ever configured with, then remove it", err, f)
	}
	former = time.Duration(k.Promise)
	if former == now {
		return former, nil
	}
	return former, f.write(max(former, now))
}

// settle notes the present promise alone, once all longer ones of earlier processes are over.
func (f promiseFile) settle(ctx context.Context, former, now time.Duration, pause func(context.Context, time.Duration) bool,
	log *slog.Logger) {
	if former <= now || !pause(ctx, former) {
		return
	}
	if err := f.write(now); err != nil {
		log.Warn("the longest promise is still noted as it was: the next start waits for it", "promise", former, "error", err)
	}
}

func (f promiseFile) write(d time.Duration) error {
	text, err := json.Marshal(keptPromise{federation.Duration(d)})
	if err != nil {
		return err
	}
	return machine.WriteFile(string(f), append(text, '\n'), false)
}
