// SPDX-License-Identifier: Apache-2.0

package lent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/weir-storage/weir/exchange/capability"
	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/exchange/lent/s3gw"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/store"
)

// objects are what S3 is spoken for.
type objects struct {
	s    *Store
	busy names // objects that are being put or deleted
}

// mostObject is how large an object may be: segments have 64 MiB.
const mostObject = 128 << 20

// prefix is where all lent room is in the store below.
const prefix = "lent/"

func key(bucket, name string) string { return prefix + bucket + "/" + name }

// use judges what somebody whose secret is good wants to do (lent-1, lent-2). name is "" for lists.
func (o *objects) use(access, bucket, name string, op operation) (capability.Capability, *deal, error) {
	c, err := capability.Read(access)
	if err != nil {
		return c, nil, fmt.Errorf("%w: %w", s3gw.ErrRefused, err)
	}
	d, why := o.s.may(c, bucket, name, op)
	if why != "" {
		return c, d, fmt.Errorf("%w: %s", s3gw.ErrRefused, why)
	}
	return c, d, nil
}

// Put implements s3gw.Objects. What is refused is read to its end all the same: who sends to one
// that does not read sees a broken pipe, and not the answer.
func (o *objects) Put(ctx context.Context, access, bucket, name string, size int64, body io.Reader) error {
	err := o.put(ctx, access, bucket, name, size, body)
	if err != nil {
		_, _ = io.CopyN(io.Discard, body, min(size, mostObject)) // it may have been cut
	}
	return err
}

func (o *objects) put(ctx context.Context, access, bucket, name string, size int64, body io.Reader) error {
	c, d, err := o.use(access, bucket, name, opPut)
	if err != nil {
		return err
	}
	if size < 0 || size > mostObject {
		return fmt.Errorf("%w: an object of %d bytes: put %d at most", s3gw.ErrRefused, size, mostObject)
	}
	end, err := o.busy.begin(ctx, bucket, name)
	if err != nil {
		return err
	}
	defer end()
	if _, err := o.s.cfg.Store.Stat(ctx, key(bucket, name)); !errors.Is(err, store.ErrNotExist) {
		if err == nil {
			err = s3gw.ErrExists
		}
		return err
	}
	done, err := o.s.ledger.Reserve(bucket, c.Gateway, quantity.Bytes(size), ledger.Limit{Amount: d.request.Amount, Room: d.room})
	if err != nil {
		return fmt.Errorf("%w: %w", s3gw.ErrNoRoom, err)
	}
	once := &once{body: body, size: size, allowed: func() error {
		_, _, err := o.use(access, bucket, name, opPut) // it may have taken long
		return err
	}}
	err = o.s.cfg.Store.Put(ctx, key(bucket, name), size, once)
	switch {
	case err == nil:
		done(true)
		return nil
	case once.failed != nil: // what was sent is not what was signed
		done(false)
		return once.failed
	case errors.Is(err, store.ErrInvalid):
		done(false)
		return fmt.Errorf("%w: %w", s3gw.ErrRefused, err)
	}
	// The store below may have it all the same.
	switch i, there := o.s.cfg.Store.Stat(context.WithoutCancel(ctx), key(bucket, name)); {
	case there == nil && i.Size == size:
		done(true)
		return nil
	case errors.Is(there, store.ErrNotExist):
		done(false)
	default: // the room stays reserved until what is stored is counted again
		o.s.ledger.Doubt(bucket, c.Gateway)
	}
	return err
}

// Open implements s3gw.Objects.
func (o *objects) Open(ctx context.Context, access, bucket, name string, off, n int64) (io.ReadCloser, error) {
	c, _, err := o.use(access, bucket, name, opGet)
	if err != nil {
		return nil, err
	}
	r := &parts{off: off, left: n, read: func(off int64, p []byte) error {
		return o.s.cfg.Store.GetRange(context.WithoutCancel(ctx), key(bucket, name), off, p)
	}, done: func(n int64) { o.s.ledger.Read(bucket, c.Gateway, quantity.Bytes(n)) }}
	return r, missing(r.fill())
}

// part is how much of an object is read at a time, in bytes.
const part = 4 << 20

// parts reads a range of an object part by part, and says at its end how much was read.
type parts struct {
	off, left, got int64
	text           []byte // of the part that was read last
	read           func(off int64, p []byte) error
	done           func(n int64)
}

func (r *parts) fill() error {
	p := make([]byte, min(r.left, part))
	if err := r.read(r.off, p); err != nil {
		return err
	}
	r.text, r.off, r.left = p, r.off+int64(len(p)), r.left-int64(len(p))
	return nil
}

// Read implements io.Reader.
func (r *parts) Read(p []byte) (int, error) {
	if len(r.text) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.text)
	r.text, r.got = r.text[n:], r.got+int64(n)
	return n, nil
}

// Close implements io.Closer.
func (r *parts) Close() error {
	if r.done != nil {
		r.done(r.got)
		r.done = nil
	}
	return nil
}

// once is a body that is read once, and has as many bytes as it says.
type once struct {
	body      io.Reader
	size, got int64
	failed    error
	allowed   func() error // at the end
}

var errLength = errors.New("it has another length than it says")

// Read implements io.Reader.
func (b *once) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.got += int64(n)
	switch {
	case b.got > b.size, errors.Is(err, io.EOF) && b.got < b.size:
		err = fmt.Errorf("%w: %w", s3gw.ErrRefused, errLength)
	case errors.Is(err, io.EOF):
		if why := b.allowed(); why != nil {
			err = why
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// Seek implements io.Seeker, as far as stores need it: to its end, to look how long it is, and to
// its start before it is read.
func (b *once) Seek(off int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekEnd && off == 0:
		return b.size, nil
	case whence == io.SeekStart && off == 0 && b.got == 0:
		return 0, nil
	}
	return 0, errors.New("it is read once: it has to be sent again")
}

func missing(err error) error {
	if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrInvalid) {
		return s3gw.ErrNotExist
	}
	return err
}

// Stat implements s3gw.Objects.
func (o *objects) Stat(ctx context.Context, access, bucket, name string) (s3gw.Object, error) {
	if _, _, err := o.use(access, bucket, name, opGet); err != nil {
		return s3gw.Object{}, err
	}
	i, err := o.s.cfg.Store.Stat(ctx, key(bucket, name))
	if err != nil {
		return s3gw.Object{}, missing(err)
	}
	return s3gw.Object{Name: name, Size: i.Size, Modified: i.Modified}, nil
}

var errEnough = errors.New("enough")

// List implements s3gw.Objects.
func (o *objects) List(ctx context.Context, access, bucket, begins, after string, most int) (out []s3gw.Object, err error) {
	if _, _, err := o.use(access, bucket, "", opList); err != nil {
		return nil, err
	}
	in := key(bucket, "")
	err = o.s.cfg.Store.List(ctx, in+begins, func(i store.Info) error {
		name := strings.TrimPrefix(i.Name, in)
		if name <= after {
			return nil
		}
		if len(out) >= most {
			return errEnough
		}
		out = append(out, s3gw.Object{Name: name, Size: i.Size, Modified: i.Modified})
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

// Delete implements s3gw.Objects.
func (o *objects) Delete(ctx context.Context, access, bucket, name string) error {
	c, _, err := o.use(access, bucket, name, opDelete)
	if err != nil {
		return err
	}
	end, err := o.busy.begin(ctx, bucket, name)
	if err != nil {
		return err
	}
	defer end()
	i, err := o.s.cfg.Store.Stat(ctx, key(bucket, name))
	if err != nil {
		return missing(err)
	}
	if err := o.s.cfg.Store.Delete(ctx, key(bucket, name)); err != nil {
		_, there := o.s.cfg.Store.Stat(context.WithoutCancel(ctx), key(bucket, name))
		if !errors.Is(there, store.ErrNotExist) { // else it is gone all the same
			return err
		}
	}
	folder, _, _ := strings.Cut(name, "/")
	o.s.ledger.Deleted(bucket, c.Gateway, folder, quantity.Bytes(i.Size))
	return nil
}

// names are objects that somebody is busy with.
type names struct {
	mu  sync.Mutex
	all map[string]chan struct{} // closed at the end
}

// begin waits until nobody else is busy with an object, and returns what ends that. It fails only
// with ctx.
func (n *names) begin(ctx context.Context, bucket, name string) (end func(), err error) {
	k := key(bucket, name)
	for {
		n.mu.Lock()
		other := n.all[k]
		if other == nil {
			if n.all == nil {
				n.all = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			n.all[k] = mine
			n.mu.Unlock()
			return func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				delete(n.all, k)
				close(mine)
			}, nil
		}
		n.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
