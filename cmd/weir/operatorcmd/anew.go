// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

// When the API server was away, the program is executed anew in its process (operator-1). What else
// could be done is slow, or unsafe:
//
//   - The waits of client-go's reflectors grow up to a minute while the API server is away, and
//     nothing ends a wait. An operator that only waits would hear of changes a minute late.
//   - A process that ends is started again by the kubelet, with delays that grow up to five
//     minutes.
//   - controller-runtime does not wait for its reconcilers when the lease is lost. A second
//     operator in the same program would work beside what is left of the first one.
//
// Nothing of a program outlives execve(2). So the new program may ask for the lease by the old
// one's name, and has it at once, unless another operator has it by now.

const (
	lookEvery = time.Second     // at whether the API server answers
	awayFor   = 5 * time.Second // it did not answer for so long: it was away

	endWithin = 20 * time.Second // the kubelet kills a process after 30 s
)

// candidateName is the variable of the environment that has the name of the candidate that executed
// this program.
const candidateName = "WEIR_OPERATOR_CANDIDATE"

// lostLease is the text of controller-runtime's error, which has no name.
const lostLease = "leader election lost"

// watched is an operator whose API server may go away.
type watched struct {
	answers func(ctx context.Context) error // nil: the API server answers now
	pause   func(ctx context.Context, d time.Duration) bool
	anew    func() error // does not return, unless it fails
	log     *slog.Logger
}

// run runs operate until ctx ends, and executes the program anew when the API server was away.
// It returns when operate ended for another reason.
func (w *watched) run(ctx context.Context, operate func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- operate() }()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	back := make(chan struct{})
	go func() {
		if w.returns(watching) {
			close(back)
		}
	}()
	select {
	case err := <-ended:
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), lostLease) && w.answers(ctx) == nil {
			return err
		}
		if ctx.Err() != nil { // it was told to end meanwhile
			return nil
		}
		w.log.Warn("the operator begins anew, and waits until the API server answers", "error", err)
	case <-ctx.Done():
		// controller-runtime does not end before its caches are filled, for which it needs the API
		// server.
		limit := make(chan struct{})
		go func() {
			w.pause(context.WithoutCancel(ctx), endWithin)
			close(limit)
		}()
		select {
		case err := <-ended:
			return err
		case <-limit:
			w.log.Warn("the operator ends while something of it is still under way")
			return nil
		}
	case <-back:
		w.log.Info("the API server was away and answers again; the operator begins anew")
	}
	if ctx.Err() != nil {
		return nil
	}
	return w.anew()
}

// returns waits until the API server answers again after it was away. It returns false when ctx
// ends before.
func (w *watched) returns(ctx context.Context) bool {
	away := time.Duration(0)
	for w.pause(ctx, lookEvery) {
		switch err := w.answers(ctx); {
		case ctx.Err() != nil:
			return false
		case err != nil:
			away += lookEvery
		case away >= awayFor:
			return true
		default:
			away = 0
		}
	}
	return false
}

// candidate is the name under which this process asks for the lease. The program that is executed
// anew in the process keeps it.
func candidate(getenv func(string) string) (string, error) {
	host, err := os.Hostname()
	return cmp.Or(getenv(candidateName), host+"_"+uuid.NewString()), err
}

// execute replaces this program by a new one in the same process.
func execute(candidate string) error {
	path, err := os.Executable()
	if err = errors.Join(err, os.Setenv(candidateName, candidate)); err == nil {
		err = syscall.Exec(path, os.Args, os.Environ())
	}
	return fmt.Errorf("execute the operator anew: %w", err)
}

// lock is the lease of the operator that leads; nil: the manager makes it.
func (o *operator) lock(cluster *rest.Config, candidate string) (resourcelock.Interface, error) {
	if !o.elect || o.namespace == "" {
		return nil, nil
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.namespace, process.OperatorLease,
		resourcelock.ResourceLockConfig{Identity: candidate}, cluster, renewTime)
	if err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	return lock, nil
}

// renewTime is how long the operator that leads tries to renew its lease: controller-runtime's.
const renewTime = 10 * time.Second
